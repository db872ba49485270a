"""The broker's topics as consumer groups look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kafkalog_broker.coordinator.java_order import group_hash, topic_hash
from kafkalog_broker.groups.consumer.consumer_group import TopicInfo
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.storage.topics_file import Topic


class TopicsView:
    """Topics of the registry, with the rack of this broker; no topics without a registry.

    version: another number after any change of topics. created_version: the same when topics were last added.
    """

    def __init__(self, registry: TopicRegistry | None = None, rack_of_broker: Callable[[], str | None] = lambda: None):
        self._registry = registry
        self._rack = rack_of_broker

    @property
    def version(self) -> int:
        return 0 if self._registry is None else self._registry.generation

    @property
    def created_version(self) -> int:
        return 0 if self._registry is None else self._registry.created_generation

    @property
    def rack(self) -> str | None:
        return self._rack()

    def by_name(self, name: str) -> TopicInfo | None:
        return None if self._registry is None else _info(self._registry.get(name))

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return None if self._registry is None else _info(self._registry.by_id(topic_id))

    def names(self) -> Iterable[str]:
        """Names of all topics; the registry replaces its mapping, and never changes it."""
        return () if self._registry is None else self._registry.topics.keys()


def _info(topic: Topic | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.id, topic.partitions)


class HashedTopics:
    """Hashes of topics' metadata, each computed once for as long as the topic is the same."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._hashes: dict[str, tuple[TopicInfo, int]] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """The metadata hash of a group that subscribes to these names."""
        found = []
        for name in names:
            topic = self._topics.by_name(name)
            if topic is None:
                self._hashes.pop(name, None)
                continue
            known = self._hashes.get(name)
            if known is None or known[0] != topic:
                known = self._hashes[name] = (
                    topic,
                    topic_hash(topic.name, topic.topic_id, topic.partitions, self._topics.rack),
                )
            found.append((name, known[1]))
        return group_hash(found)
