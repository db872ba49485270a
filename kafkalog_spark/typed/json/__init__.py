"""The formats of values in JSON: kernels, and the rules of Spark's from_json in plain Python."""
