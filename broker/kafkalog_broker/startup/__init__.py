"""Creation of the parts of a broker. server.py calls these functions in the order of the parts' dependencies."""
