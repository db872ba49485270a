"""The log of one partition: segments, reads, look-ups by time, flushes, epochs, producers, retention."""
