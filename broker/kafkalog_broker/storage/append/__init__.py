"""Appends of producers: validation within a time budget, conversion of old formats, recompression."""
