"""The share coordinator: the state of share partitions, and its records in `__share_group_state`."""
