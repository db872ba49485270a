"""Kafka's messages for error codes (`Errors`), where a response has one although the error has a message of its own."""

UNKNOWN_TOPIC_OR_PARTITION = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID = "This server does not host this topic ID."
