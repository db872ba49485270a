"""Listeners and connections: all code that uses sockets of clients. `protocol` interprets the bytes."""
