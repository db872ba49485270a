"""Kafka's messages: their definitions as data, and the compiler that makes readers and writers of them."""
