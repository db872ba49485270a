"""Sets of share partitions, by topic ID."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import SharedTopic

SharedTopics = Mapping[UUID, SharedTopic]
T = TypeVar("T")


def union(left: SharedTopics, right: SharedTopics) -> dict[UUID, SharedTopic]:
    """Return the partitions that are in at least one of two sets."""
    topics = dict(left)
    for topic_id, shared in right.items():
        present = topics[topic_id].partitions if topic_id in topics else ()
        topics[topic_id] = SharedTopic(shared.name, tuple(sorted({*present, *shared.partitions})))
    return topics


def difference(topics: SharedTopics, subtracted: SharedTopics) -> dict[UUID, SharedTopic]:
    """Return the partitions of `topics` that are not in `subtracted`."""
    remaining = {}
    for topic_id, shared in topics.items():
        removed = subtracted[topic_id].partitions if topic_id in subtracted else ()
        if partitions := tuple(index for index in shared.partitions if index not in removed):
            remaining[topic_id] = SharedTopic(shared.name, partitions)
    return remaining


def without_topics(topics: Mapping[UUID, T], removed: Collection[UUID]) -> dict[UUID, T]:
    """Return `topics` without the topics in `removed`."""
    return {topic_id: value for topic_id, value in topics.items() if topic_id not in removed}
