"""Listeners and connections: the part that has sockets. Which bytes mean what is known by `protocol`."""
