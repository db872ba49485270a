"""Metrics of the broker in Prometheus' text format over HTTP."""
