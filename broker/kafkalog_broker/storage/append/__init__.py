"""What batches go through before they are appended: validation, recompression, offsets."""
