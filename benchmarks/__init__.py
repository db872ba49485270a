"""Benchmarks: figures as ratios of things measured in turn in the same minutes. `make bench` runs them all."""
