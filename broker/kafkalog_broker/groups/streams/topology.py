"""The topology of a streams application, as its members send it (Kafka's StreamsTopology).

The fields of the tuples are in the order of StreamsGroupTopologyValue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode


class TopicInfo(NamedTuple):
    """An internal topic.

    Attributes:
        partitions: 0 if the number of partitions depends on the sources.
        replication_factor: 0 for the default of the broker.
    """

    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[tuple[str, str], ...]


class CopartitionGroup(NamedTuple):
    """Sources of a subtopology that need equally many partitions, as indexes into the fields of `Subtopology`."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    """A part of the topology whose tasks are assigned as a unit."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def sources(self) -> Iterator[str]:
        return chain(self.source_topics, (topic.name for topic in self.repartition_source_topics))

    @property
    def internal_topics(self) -> Iterator[TopicInfo]:
        return chain(self.repartition_source_topics, self.state_changelog_topics)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Yield the topic names of subtopology copartition group.

        Raises:
            BrokerError: unknown_server_error for an index without a topic, as in Kafka.
        """
        sources = dict(enumerate(self.source_topics))
        repartitions = {index: topic.name for index, topic in enumerate(self.repartition_source_topics)}
        for group in self.copartition_groups:
            indexes = ((sources, group.source_topics), (repartitions, group.repartition_source_topics))
            try:
                yield frozenset(names[index] for names, in_names in indexes for index in in_names)
            except KeyError:
                raise BrokerError(ErrorCode.unknown_server_error) from None


@dataclass(frozen=True)
class Topology:
    """A topology. Its subtopologies are in the order of the record."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Subtopology]:
        return {subtopology.subtopology_id: subtopology for subtopology in self.subtopologies}

    @cached_property
    def by_source(self) -> Mapping[str, str]:
        """Subtopology ID by the name of subtopology topic that a subtopology reads."""
        return {name: subtopology.subtopology_id for subtopology in self.subtopologies for name in subtopology.sources}

    @cached_property
    def required_topics(self) -> frozenset[str]:
        changelogs = (topic.name for subtopology in self.subtopologies for topic in subtopology.state_changelog_topics)
        return frozenset(chain(self.by_source, changelogs))


def build_topology(epoch: int, subtopologies: Iterable[Any]) -> Topology:
    """Return the topology of a request or record, whose subtopologies are nested tuples.

    Raises:
        BrokerError: streams_invalid_topology if two subtopologies have the same ID.
    """

    def infos(topics: Iterable[Any]) -> tuple[TopicInfo, ...]:
        return tuple(TopicInfo(*topic) for topic in topics)

    topology = Topology(epoch, tuple(
        Subtopology(name, topics, regexes, infos(changelogs), sinks, infos(repartitions),
                    tuple(CopartitionGroup(*group) for group in groups))
        for name, topics, regexes, changelogs, sinks, repartitions, groups in subtopologies
    ))  # fmt: skip
    if len(topology.by_id) < len(topology.subtopologies):
        raise invalid_topology("Two subtopologies have the same id.")
    return topology


def invalid_topology(message: str) -> BrokerError:
    return BrokerError(ErrorCode.streams_invalid_topology, message)
