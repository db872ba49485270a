"""Compression codecs: one file for each codec, and `compress` and `decompress` for all of them."""
