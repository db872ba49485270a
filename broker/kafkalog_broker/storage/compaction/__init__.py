"""Log cleaner: choice of dirty logs, latest offsets of keys, rewriting of segments."""
