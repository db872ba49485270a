"""Commands: arguments to calls, results to text."""
