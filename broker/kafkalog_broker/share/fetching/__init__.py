"""What members of share groups are given: sessions, share partitions in use, one pass of a ShareFetch."""
