"""Share groups (KIP-932): queues over partitions. Who is a member and what is assigned to it, which records of a
partition are in flight with whom, and the share coordinator, which keeps that in `__share_group_state`.

`partition` holds what is in flight, `state` the share coordinator, `membership` the groups, `fetching` what members are
given. Nothing of it knows a socket.
"""
