"""Groups and their committed offsets: the group coordinator (Kafka's group-coordinator module).

No asyncio, sockets or files here: time comes from a clock and a scheduler, records are appended by the coordinator
runtime, and requests that have to wait are answered through callbacks.
"""
