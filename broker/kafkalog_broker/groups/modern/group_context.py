"""Context of all groups of a coordinator: configuration, time, background tasks and topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_executor import RunInBackground
from kafkalog_broker.coordinator.coordinator_timer import Scheduler
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.groups.modern.group_settings import (
    GroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    consumer_group_settings,
    share_group_settings,
    streams_group_settings,
)
from kafkalog_broker.groups.modern.metadata_hash import group_hash, topic_hash
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.topic_registry import TopicRegistry

InitializeShared = Callable[[str, int, Mapping[UUID, SharedTopic], bool], None]
"""Starts to initialize share partitions in the background. Arguments: group ID, state epoch, partitions by topic ID,
and whether they start at offset 0 instead of the offset that share.auto.offset.reset selects."""


@dataclass(slots=True)
class GroupContext:
    """Context of all groups of one coordinator.

    Attributes:
        config: Replaced when a property of the broker changes.
        overrides: Returns the properties that were set for a group.
        background: Runs a task in a thread, see `RunInBackground`.
        new_id: Returns an ID for a member without one.
        initialize: Initializes share partitions, see `InitializeShared`.
    """

    config: BrokerConfig
    clock: Clock
    scheduler: Scheduler
    topics: TopicRegistry = field(default_factory=lambda: TopicRegistry([]))
    overrides: Callable[[str], Mapping[str, str]] = lambda group_id: {}
    background: RunInBackground = lambda compute, done: done(compute())
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    initialize: InitializeShared = lambda group_id, epoch, topics, from_start: None

    def consumer_settings(self, group_id: str) -> GroupSettings:
        return consumer_group_settings(self.config, self.overrides(group_id))

    def share_settings(self, group_id: str) -> ShareGroupSettings:
        return share_group_settings(self.config, self.overrides(group_id))

    def streams_settings(self, group_id: str) -> StreamsGroupSettings:
        return streams_group_settings(self.config, self.overrides(group_id))

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Return the metadata hash of the topics with these names. Names of absent topics are ignored."""
        topics = self.topics.topics
        rack = self.config.broker_rack
        return group_hash((name, topic_hash(topics[name], rack)) for name in names if name in topics)

    def topic_ids(self, names: Iterable[str]) -> list[UUID]:
        """Return the IDs of the topics that exist, in the order of their names."""
        topics = map(self.topics.get, sorted(names))
        return [topic.id for topic in topics if topic is not None]

    def partition_count(self, name: str) -> int | None:
        """Return the number of partitions of a topic, or None if it does not exist."""
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions

    def has_more_partitions(self, names: Iterable[str], limit: int) -> bool:
        """Return whether topics have more than `limit` partitions in total. Counting stops there."""
        total = 0
        for name in names:
            total += self.partition_count(name) or 0
            if total > limit:
                return True
        return total > limit
