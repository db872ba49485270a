"""What a test may do to its broker while it runs: faults, and the clock."""
