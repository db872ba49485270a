"""The topic registry as consumer groups look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.groups.consumer.consumer_group import TopicInfo
from kafkalog_broker.groups.consumer.group_store import GroupSettings
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.storage.topics_file import Topic


class RegistryTopics:
    """A TopicsView. rack_of_broker: None without one."""

    def __init__(self, registry: TopicRegistry, rack_of_broker: Callable[[], str | None]) -> None:
        self._registry = registry
        self._rack = rack_of_broker

    @property
    def version(self) -> int:
        return self._registry.generation

    @property
    def created_version(self) -> int:
        return self._registry.created_generation

    @property
    def rack(self) -> str | None:
        return self._rack()

    def by_name(self, name: str) -> TopicInfo | None:
        return _info(self._registry.get(name))

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return _info(self._registry.by_id(topic_id))

    def names(self) -> Iterable[str]:
        return self._registry.topics.keys()  # of a mapping that is replaced, never changed


def _info(topic: Topic | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.id, topic.partitions)


class NoTopics:
    """A TopicsView of a broker without topics."""

    version = created_version = 0
    rack: str | None = None

    def by_name(self, name: str) -> TopicInfo | None:
        return None

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


# What holds for one consumer group: its own properties, within the broker's limits (Kafka's GroupConfig).


def group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> GroupSettings:
    """overrides: properties of the group by name. A value beyond the limits, which may have been other ones when it was
    set, counts as the nearest that is allowed."""
    c = config

    def value(name: str, default: int, lowest: int, highest: int) -> int:
        text = overrides.get(f"consumer.{name}")
        return default if text is None else min(max(int(text), lowest), highest)

    interval = min(
        max(c.group_consumer_assignment_interval_ms, c.group_consumer_min_assignment_interval_ms),
        c.group_consumer_max_assignment_interval_ms,
    )
    return GroupSettings(
        value(
            "session.timeout.ms", c.group_consumer_session_timeout_ms, c.group_consumer_min_session_timeout_ms,
            c.group_consumer_max_session_timeout_ms,
        ),
        value(
            "heartbeat.interval.ms", c.group_consumer_heartbeat_interval_ms,
            c.group_consumer_min_heartbeat_interval_ms, c.group_consumer_max_heartbeat_interval_ms,
        ),
        value(
            "assignment.interval.ms", interval, c.group_consumer_min_assignment_interval_ms,
            c.group_consumer_max_assignment_interval_ms,
        ),
    )  # fmt: skip
