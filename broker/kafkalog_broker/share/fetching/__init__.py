"""Fetching of share groups: sessions, share partitions in use, a pass of a ShareFetch."""
