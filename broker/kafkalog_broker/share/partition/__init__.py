"""The records of one share partition that are in flight, as plain data and decisions (Kafka's SharePartition)."""
