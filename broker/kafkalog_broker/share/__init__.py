"""Share groups (KIP-932): delivery of records, share sessions, and the state of share partitions."""
