"""Arrow columns that compiled decoders fill, one entry at a time: their layout, their memory, and how they grow."""
