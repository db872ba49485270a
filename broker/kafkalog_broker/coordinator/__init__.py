"""What the coordinators of groups and of transactions have in common (Kafka's coordinator-common): the internal topic
that each keeps its state in, which partitions of it are served, and how they are loaded."""
