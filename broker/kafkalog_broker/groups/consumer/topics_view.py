"""The broker's topics as consumer groups look at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from kafkalog_broker.coordinator.java_order import group_hash, topic_hash
from kafkalog_broker.groups.consumer.consumer_group import TopicInfo


class TopicsView(Protocol):
    """version: another number after any change of topics. created_version: the same when topics were last added.
    rack: of this broker."""

    @property
    def version(self) -> int: ...

    @property
    def created_version(self) -> int: ...

    @property
    def rack(self) -> str | None: ...

    def by_name(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: UUID) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]:
        """Names of all topics, as a copy."""
        ...


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
