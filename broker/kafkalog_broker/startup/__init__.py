"""Making the parts of a broker, in the order of their dependencies; server.py calls it."""
