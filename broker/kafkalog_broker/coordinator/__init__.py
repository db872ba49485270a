"""Common parts of the coordinators (Kafka's coordinator-common): the internal topic
that each keeps its state in, which partitions of it are served, and how they are loaded."""
