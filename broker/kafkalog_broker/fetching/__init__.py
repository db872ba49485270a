"""Fetch: sessions, long polls, reads and down-conversion."""
