"""Log of one partition: segments, reads, timestamp look-ups, flushes, leader epochs, producer state, retention."""
