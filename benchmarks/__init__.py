"""Benchmarks, which measure alternatives in turn and report ratios. `make bench` runs all of them."""
