"""Metrics of the broker as Prometheus text over HTTP."""
