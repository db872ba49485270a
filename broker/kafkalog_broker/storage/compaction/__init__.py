"""The log cleaner: what is dirty, which offset of a key is the last, and segments rewritten."""
