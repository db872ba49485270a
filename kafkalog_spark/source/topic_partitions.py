"""Topic partitions, and their notation in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable

TopicPartition = tuple[str, int]
"""Topic and partition number."""
_SHOWN_PARTITIONS = 20  # in an error message


def tp_text(topic_partition: TopicPartition) -> str:
    """Return `topic-0`, Kafka's notation of a partition."""
    return f"{topic_partition[0]}-{topic_partition[1]}"


def set_text(partitions: Collection[TopicPartition], whole_topics: Iterable[str] = ()) -> str:
    """Return `Set(topic-0, topic-1)`, as the connector prints partitions. Whole topics are `topic-*`."""
    whole = [f"{topic}-*" for topic in sorted(whole_topics)]
    return f"Set({names_text([*whole, *map(tp_text, sorted(partitions))])})"


def names_text(names: list[str]) -> str:
    """Return names separated by commas. If there are many, return the first ones and the number of the others."""
    more = len(names) - _SHOWN_PARTITIONS
    return ", ".join(names[:_SHOWN_PARTITIONS]) + (f", ... ({more} more)" if more > 0 else "")
