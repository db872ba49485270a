"""Common parts of the coordinators (Kafka's coordinator-common): internal topic, partitions served, their loading."""
