"""Check of the names of topics that a sink writes to."""

from __future__ import annotations

from kafkalog_spark.format.names import is_internal, valid_topic_name


def topic_fault(topic: str) -> str | None:
    """Return why a topic of that name cannot be written to; None if it can."""
    if not valid_topic_name(topic):
        return (
            f"'{topic}' is not the name of a topic: a name has 1 to 249 characters of a-z A-Z 0-9 . _ - and is neither "
            "'.' nor '..'"
        )
    if is_internal(topic):
        return f"'{topic}' is internal to Kafka: only brokers write to it"
    return None
