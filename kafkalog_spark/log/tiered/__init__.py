"""Formats and rules of tiered storage (KIP-405). They do no I/O, except that key files are read."""
