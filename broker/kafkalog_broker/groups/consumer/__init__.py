"""Consumer groups of the newer protocol (KIP-848): the coordinator assigns, and members follow by heartbeats.

As in Kafka, a request becomes a list of changes, which are written as records and then applied to the group in memory;
a start applies the same changes, read from the log. Nothing in here knows files, sockets or asyncio.
"""
