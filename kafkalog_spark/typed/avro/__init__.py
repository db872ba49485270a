"""Avro's binary encoding: schemas, their resolution into a program, the kernel that runs it, and the way back."""
