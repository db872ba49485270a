"""Share groups and their members: heartbeats, target assignments, the records in `__consumer_offsets`."""
