"""Fetch and ListOffsets: sessions, reads, waits, reads from remote storage and down-conversion."""
