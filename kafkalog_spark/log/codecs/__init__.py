"""Compression codecs: one file each, and the two functions that choose among them. Facts: format/codecs.py."""
