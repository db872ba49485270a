"""Kafka's messages: their definitions, and a compiler from a definition to Python classes, a reader and a writer."""
