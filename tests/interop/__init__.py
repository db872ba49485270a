"""Tests against Apache Kafka's broker, clients and tools, and Spark's own Kafka connector."""
