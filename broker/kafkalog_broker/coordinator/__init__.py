"""Base of the coordinators of groups, share partitions and transactions (Kafka's coordinator-common module).

Start with `coordinator_runtime`: its docstring describes how a coordinator uses this package.
"""
