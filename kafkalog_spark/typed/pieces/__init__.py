"""Rows to bytes, a column at a time: what the encoders of Avro and Protobuf are made of."""
