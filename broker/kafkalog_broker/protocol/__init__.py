"""Kafka's wire protocol: bytes to values and back. No socket, no file, no clock."""
