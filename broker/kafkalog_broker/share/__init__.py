"""Share groups (KIP-932), queues over partitions: which records of a partition are in flight with whom, and the share
coordinator, which keeps that in `__share_group_state`. Their members are in groups/share. Nothing here knows a socket.
"""
