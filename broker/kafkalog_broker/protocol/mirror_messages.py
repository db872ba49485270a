"""Requests of a mirror to another cluster: Metadata, ListOffsets, OffsetForLeaderEpoch, and Fetch from version 5
(Kafka 0.11) to 13 (topic ids, Kafka 3.1)."""

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
"""Lowest and highest version that a mirror uses, by API key. Kafka 0.11 serves the lowest ones (2.1 that of
OffsetForLeaderEpoch), Kafka 4.3 the highest ones."""
SESSIONS, TOPIC_IDS = 7, 13  # first versions of Fetch with sessions, and with topic IDs
EARLIEST, LATEST = -2, -1
CONSUMER = -1  # replica ID of consumers
NO_ID = uuid.UUID(int=0)


Key = tuple[str, int]  # topic and partition


class SourcePartition(NamedTuple):
    """leader: node ID, or -1 if there is none. leader_epoch: -1 if it is unknown (before Kafka 2.1)."""

    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic of the source cluster. id: zero before Kafka 2.8."""

    name: str
    id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, SourcePartition]


class SourceCluster(NamedTuple):
    """The source cluster as Metadata describes it. nodes: (host, port) by node ID."""

    cluster_id: str | None
    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]


class Asked(NamedTuple):
    """Response for a partition. error: an ErrorCode, or its number if the code is of a later release."""

    error: int
    offset: int
    epoch: int = -1


ALL_TOPICS: Mapping[str, Any] = {
    "topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
"""Fields of a Metadata request for all topics."""


def cluster_of(answer: Any) -> SourceCluster:
    """Return the cluster that a response to Metadata describes. Topics with an error are left out."""
    topics = {}
    for topic in answer.topics:
        if not topic.error_code and topic.name is not None:
            partitions = {
                int(one.partition_index): SourcePartition(int(one.leader_id), int(one.leader_epoch))
                for one in topic.partitions
            }
            topic_id = topic.topic_id or NO_ID
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in answer.brokers}
    return SourceCluster(answer.cluster_id, nodes, topics)


def listed_offsets(answer: Any) -> dict[Key, Asked]:
    """Return the offsets in a response to ListOffsets."""
    return {
        (topic.name, int(one.partition_index)): Asked(one.error_code, int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def epoch_ends(answer: Any) -> dict[Key, Asked]:
    """Return the leader epochs in a response to OffsetForLeaderEpoch, with their end offsets."""
    return {
        (topic.topic, int(one.partition)): Asked(one.error_code, int(one.end_offset), int(one.leader_epoch))
        for topic in answer.topics
        for one in topic.partitions
    }


class FetchFrom(NamedTuple):
    """A partition of the request, with the names of its fields. topic_id: zero if unknown. Epochs: -1 if unknown."""

    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchCall(NamedTuple):
    """A Fetch request. session: (ID, epoch), or (0, -1) without a session. Sizes are in bytes."""

    session: tuple[int, int]
    partitions: Sequence[tuple[Key, FetchFrom]]
    forgotten: Sequence[tuple[Key, uuid.UUID]]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0


class Fetched(NamedTuple):
    """Response for a partition.

    Attributes:
        topic: Name or, from version 13 on, topic ID.
        error: As in Asked.
        records: A view of the response.
        diverging: (epoch, end offset) of the leader's log if it diverges from the log of the mirror.
    """

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class FetchAnswer(NamedTuple):
    """A response. throttle_ms: time for which the mirror must send nothing more."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[Fetched]


def encode_fetch(call: FetchCall, version: int) -> bytes:
    """Return the body of the request, whose isolation level is read_uncommitted."""
    wanted: dict[tuple[str, uuid.UUID], list[FetchFrom]] = {}
    for (name, _), fetch in call.partitions:
        wanted.setdefault((name, fetch.topic_id), []).append(fetch)
    forgotten: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in call.forgotten:
        forgotten.setdefault((name, topic_id), []).append(partition)
    topics, forgotten_topics = (
        [{"topic": name, "topic_id": topic_id, "partitions": partitions} for (name, topic_id), partitions in of.items()]
        for of in (wanted, forgotten)
    )
    session_id, session_epoch = call.session
    return request_body(
        FETCH, version, replica_id=CONSUMER, max_wait=call.max_wait_ms, min_bytes=call.min_bytes,
        max_bytes=call.max_bytes, session_id=session_id, session_epoch=session_epoch, topics=topics,
        forgotten_topics_data=forgotten_topics,
    )  # fmt: skip


def decode_fetch(body: memoryview, version: int, most: int) -> FetchAnswer:
    """Return a response.

    Args:
        most: Number of partitions that it may have.

    Raises:
        MalformedRequest: If the bytes are not that response, or if it has more partitions.
    """
    answer = read_response(FETCH, version, body, 2 * most + MAX_ELEMENTS)
    partitions = [
        Fetched(
            topic.topic_id or NO_ID if version >= TOPIC_IDS else topic.topic, one.partition_index, one.error_code,
            one.high_watermark, one.log_start_offset, body[:0] if one.records is None else one.records, _diverging(one),
        )
        for topic in answer.responses
        for one in topic.partitions
    ]  # fmt: skip
    if len(partitions) > most:
        raise MalformedRequest(f"a response to Fetch has more than the {most} requested partitions")
    throttle_ms = answer.throttle_time // timedelta(milliseconds=1)
    return FetchAnswer(throttle_ms, answer.error_code, answer.session_id, partitions)


def _diverging(partition: Any) -> tuple[int, int] | None:
    end = partition.diverging_epoch
    return None if end.epoch < 0 else (end.epoch, end.end_offset)
