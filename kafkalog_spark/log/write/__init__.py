"""Writing of segments: encoding of records, appending of batches, recovery, and restamping with offsets."""
