"""Conversion between partitions by topic name (classic protocol) and by topic ID (consumer groups)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kafkalog_broker.groups.classic.consumer_protocol import NamedPartitions
from kafkalog_broker.storage.topic_registry import TopicRegistry


def partitions_by_id(partitions: NamedPartitions, topics: TopicRegistry) -> dict[UUID, tuple[int, ...]]:
    """Return partitions by topic ID, without topics that do not exist."""
    partitions_by_topic = ((topics.get(name), tuple(indexes)) for name, indexes in partitions.items())
    return {topic.id: indexes for topic, indexes in partitions_by_topic if topic is not None}


def partitions_by_name(partitions: Mapping[UUID, Sequence[int]], topics: TopicRegistry) -> dict[str, Sequence[int]]:
    """Return partitions by topic name, without topics that do not exist."""
    partitions_by_topic = ((topics.by_id(topic_id), indexes) for topic_id, indexes in partitions.items())
    return {topic.name: indexes for topic, indexes in partitions_by_topic if topic is not None}
