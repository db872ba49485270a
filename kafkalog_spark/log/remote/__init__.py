"""Reads and writes segments in remote storage, and logs that consist of local and remote segments."""
