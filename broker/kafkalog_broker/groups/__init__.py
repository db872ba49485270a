"""Groups and their committed offsets: the group coordinator (Kafka's group-coordinator module).

The package does not use asyncio, sockets or files: a clock and a scheduler provide the time, the coordinator runtime
appends records, and requests that have to wait are answered through callbacks.
"""
