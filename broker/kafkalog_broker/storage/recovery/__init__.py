"""From a partition's directory to a log that can be opened: file cleanup, recovery after a crash, producer state."""
