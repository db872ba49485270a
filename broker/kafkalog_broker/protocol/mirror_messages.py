"""Requests that a mirror sends to its source cluster, and their responses.

These are Metadata, ListOffsets, OffsetForLeaderEpoch, and Fetch from version 5 (Kafka 0.11) to 13 (topic IDs, Kafka
3.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.client_messages import read_response, request_body
from kafkalog_broker.protocol.frames import MAX_ELEMENTS

FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 23
VERSIONS: Mapping[int, tuple[int, int]] = {
    FETCH: (5, 13), LIST_OFFSETS: (2, 7), METADATA: (4, 12), OFFSET_FOR_LEADER_EPOCH: (2, 4),
}  # fmt: skip
"""Lowest and highest version that a mirror uses, by API key. Kafka has the lowest versions since 0.11
(OffsetForLeaderEpoch since 2.1). Kafka 4.3 serves the highest ones."""
FIRST_SESSION_VERSION, FIRST_TOPIC_ID_VERSION = 7, 13  # of Fetch
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


class SourceFetchPartition(NamedTuple):
    """Partition of a Fetch request. An unknown topic ID is zero, an unknown epoch is -1."""

    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class SourceFetchRequest(NamedTuple):
    """A Fetch request. `session` is the ID and epoch of the session, or (0, -1) without one."""

    session: tuple[int, int]
    partitions: Sequence[tuple[Key, SourceFetchPartition]]
    forgotten: Sequence[tuple[Key, uuid.UUID]]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0


class FetchedSourcePartition(NamedTuple):
    """Partition of a Fetch response.

    Attributes:
        topic: Name or, from version 13 on, topic ID.
        error: An ErrorCode, or its number if it comes from a later release.
        records: A view of the response.
        diverging: Epoch and end offset in the leader's log from which the mirror's log diverges, or None.
    """

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class SourceFetchResponse(NamedTuple):
    """A Fetch response. The mirror must send no other request for `throttle_ms`."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedSourcePartition]


def encode_fetch(request: SourceFetchRequest, version: int) -> bytes:
    """Return the body of a Fetch request with isolation level read_uncommitted."""
    requested: dict[tuple[str, uuid.UUID], list[SourceFetchPartition]] = {}
    for (name, _), partition in request.partitions:
        requested.setdefault((name, partition.topic_id), []).append(partition)
    forgotten: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, index), topic_id in request.forgotten:
        forgotten.setdefault((name, topic_id), []).append(index)
    session_id, session_epoch = request.session
    return request_body(
        FETCH, version, replica_id=CONSUMER, max_wait=request.max_wait_ms, min_bytes=request.min_bytes,
        max_bytes=request.max_bytes, session_id=session_id, session_epoch=session_epoch,
        topics=_topic_fields(requested), forgotten_topics_data=_topic_fields(forgotten),
    )  # fmt: skip


def decode_fetch(body: memoryview, version: int, requested: int) -> SourceFetchResponse:
    """Read the body of a Fetch response.

    Args:
        body: Bytes after the header.
        version: Version of the request.
        requested: Number of requested partitions, which is the most that the response may have.

    Raises:
        MalformedRequest: If the bytes are not a Fetch response, or if it has more partitions.
    """
    response = read_response(FETCH, version, body, 2 * requested + MAX_ELEMENTS)
    partitions = [
        FetchedSourcePartition(
            topic.topic_id or NO_ID if version >= FIRST_TOPIC_ID_VERSION else topic.topic, partition.partition_index,
            partition.error_code, partition.high_watermark, partition.log_start_offset,
            body[:0] if partition.records is None else partition.records, _diverging(partition),
        )
        for topic in response.responses
        for partition in topic.partitions
    ]  # fmt: skip
    if len(partitions) > requested:
        raise MalformedRequest(f"a response to Fetch has more than the {requested} requested partitions")
    throttle_ms = response.throttle_time // timedelta(milliseconds=1)
    return SourceFetchResponse(throttle_ms, response.error_code, response.session_id, partitions)


def _topic_fields(partitions: Mapping[tuple[str, uuid.UUID], Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the fields of topic structs, given partitions by topic name and ID."""
    return [{"topic": name, "topic_id": topic_id, "partitions": each} for (name, topic_id), each in partitions.items()]


def _diverging(partition: Any) -> tuple[int, int] | None:
    end = partition.diverging_epoch
    return None if end.epoch < 0 else (end.epoch, end.end_offset)
