"""Spark itself: registration, its workers' processes, what its releases differ in."""
