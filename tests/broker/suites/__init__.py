"""Runs the integration suites of Kafka clients, which nobody here wrote, against the broker (`make test-suites`)."""
