"""What all groups of a coordinator share: configuration, time, background work, topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_timer import Scheduler
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.groups.modern.metadata_hash import group_hash, topic_hash
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.topic_registry import TopicRegistry

MAX_SUBSCRIBED_TOPICS = 4_000
"""Topics that a member, or a whole group, may name: each change of a subscription counts and hashes all in one step."""

InitializeShared = Callable[[str, int, Mapping[UUID, SharedTopic], bool], None]
"""Begins the state of share partitions some time after the answer: (group, state epoch, partitions by topic, whether
they start at offset 0 and not where share.auto.offset.reset says)."""


@dataclass(slots=True)
class GroupContext:
    """Context of one coordinator, for all its groups.

    config: replaced when a property changes. overrides: properties that were set for a group. background: computes
    away from the requests and calls `done` in their thread, with the result or the exception. new_id: for members
    without one. initialize: see InitializeShared.
    """

    config: BrokerConfig
    clock: Clock
    scheduler: Scheduler
    topics: TopicRegistry = field(default_factory=lambda: TopicRegistry([]))
    overrides: Callable[[str], Mapping[str, str]] = lambda group_id: {}
    background: Callable[[Callable[[], Any], Callable[[Any], None]], None] = lambda compute, done: done(compute())
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    initialize: InitializeShared = lambda group_id, epoch, topics, from_start: None

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Hash of the topics with these names, as far as they exist."""
        topics, rack = self.topics.topics, self.config.broker_rack
        return group_hash((name, topic_hash(topics[name], rack)) for name in names if name in topics)
