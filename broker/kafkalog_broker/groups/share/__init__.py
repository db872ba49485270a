"""Share groups (KIP-932): their members, target assignments, and which share partitions have state."""
