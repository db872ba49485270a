"""Makes the parts of a broker. server.py calls the functions in the order of their dependencies."""
