"""APIs about groups of all types: their members, offsets and state."""
