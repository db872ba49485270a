"""Adaptation to Spark: its worker processes, its error messages, and differences between its releases."""
