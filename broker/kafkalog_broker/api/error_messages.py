"""Kafka's generic messages of error codes (`Errors`), for responses that have them instead of a specific message."""

UNKNOWN_TOPIC_OR_PARTITION = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID = "This server does not host this topic ID."
