"""From a directory to a log that can be opened: tidying up, recovery after a crash, producer state."""
