"""Preparation of batches for an append: validation, recompression, offsets."""
