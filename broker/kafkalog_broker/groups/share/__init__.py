"""Share groups (KIP-932): ShareGroupHeartbeat, and which share partitions have state."""
