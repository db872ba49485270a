"""Spark itself: its workers' processes, what its releases differ in."""
