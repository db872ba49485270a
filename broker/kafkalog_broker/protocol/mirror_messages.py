"""Requests of a mirror to its source cluster about topics and offsets, and their responses.

These are Metadata, ListOffsets and OffsetForLeaderEpoch. `mirror_fetch_messages` has those of Fetch.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 23
VERSIONS: Mapping[int, tuple[int, int]] = {
    FETCH: (5, 13), LIST_OFFSETS: (2, 7), METADATA: (4, 12), OFFSET_FOR_LEADER_EPOCH: (2, 4),
}  # fmt: skip
"""Lowest and highest version that a mirror uses, by API key. Kafka has the lowest versions since 0.11
(OffsetForLeaderEpoch since 2.1). Kafka 4.3 serves the highest ones."""
EARLIEST, LATEST = -2, -1
CONSUMER = -1  # replica ID in requests of consumers
NO_ID = uuid.UUID(int=0)

Key = tuple[str, int]  # topic and partition


class SourcePartition(NamedTuple):
    """The leader of a partition.

    Attributes:
        leader: Its node ID, or -1 if there is none.
        leader_epoch: -1 if unknown (before Kafka 2.1).
    """

    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic of the source cluster. Its ID is zero before Kafka 2.8."""

    name: str
    id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, SourcePartition]


class SourceCluster(NamedTuple):
    """The source cluster as Metadata describes it. `nodes` has host and port by node ID."""

    cluster_id: str | None
    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]


class SourceOffset(NamedTuple):
    """An offset of a partition in the source.

    Attributes:
        error: An ErrorCode, or its number if it comes from a later release.
        offset: The requested offset, or the end offset of the epoch.
        epoch: The leader epoch; -1 if unknown.
    """

    error: int
    offset: int
    epoch: int = -1


ALL_TOPICS: Mapping[str, Any] = {
    "topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
"""Fields of a Metadata request for all topics."""


def cluster_of(response: Any) -> SourceCluster:
    """Return the cluster that a response to Metadata describes. Topics with an error are left out."""
    topics = {}
    for topic in response.topics:
        if not topic.error_code and topic.name is not None:
            partitions = {
                int(partition.partition_index): SourcePartition(int(partition.leader_id), int(partition.leader_epoch))
                for partition in topic.partitions
            }
            topic_id = topic.topic_id or NO_ID
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in response.brokers}
    return SourceCluster(response.cluster_id, nodes, topics)


def listed_offsets(response: Any) -> dict[Key, SourceOffset]:
    """Return the offsets in a response to ListOffsets."""
    return {
        (topic.name, int(partition.partition_index)): SourceOffset(partition.error_code, int(partition.offset))
        for topic in response.topics
        for partition in topic.partitions
    }


def epoch_ends(response: Any) -> dict[Key, SourceOffset]:
    """Return the leader epochs in a response to OffsetForLeaderEpoch, with their end offsets."""
    return {
        (topic.topic, int(partition.partition)): SourceOffset(
            partition.error_code, int(partition.end_offset), int(partition.leader_epoch)
        )
        for topic in response.topics
        for partition in topic.partitions
    }
