"""What the coordinators of groups, share partitions and transactions have in common (Kafka's coordinator-common).

Begin with `coordinator_runtime`: its docstring tells how a coordinator uses this package.
"""
