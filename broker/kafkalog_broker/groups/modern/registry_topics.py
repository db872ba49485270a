"""The topic registry as consumer groups look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kafkalog_broker.groups.modern.values import TopicInfo
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
