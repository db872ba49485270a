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
"""By API key: 0.11 knows the lowest ones (OffsetForLeaderEpoch: 2.1), 4.3 the highest."""
SESSIONS, TOPIC_IDS = 7, 13  # versions of Fetch from which on there are such
EARLIEST, LATEST = -2, -1
CONSUMER = -1  # as replica id
NO_ID = uuid.UUID(int=0)


Key = tuple[str, int]  # topic and partition


class SourcePartition(NamedTuple):
    """leader: node id, -1 without one. leader_epoch: -1 where it is not known (before 2.1)."""

    leader: int
    leader_epoch: int


class SourceTopic(NamedTuple):
    """A topic of the cluster. id: zero before 2.8."""

    name: str
    id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, SourcePartition]


class SourceCluster(NamedTuple):
    """Cluster as Metadata describes it. nodes: (host, port) by node id."""

    cluster_id: str | None
    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]


class Asked(NamedTuple):
    """A partition's answer. error: an ErrorCode, or the number of one of a later release."""

    error: int
    offset: int
    epoch: int = -1


ALL_TOPICS: Mapping[str, Any] = {
    "topics": None, "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
"""Fields of a Metadata request for all topics."""


def cluster_of(answer: Any) -> SourceCluster:
    """Of a response to Metadata. Topics that have an error are left out, as if they were not there just now."""
    topics = {}
    for topic in answer.topics:
        if not topic.error_code and topic.name is not None:
            partitions = {
                int(one.partition_index): SourcePartition(int(one.leader_id), int(getattr(one, "leader_epoch", -1)))
                for one in topic.partitions
            }
            topic_id = getattr(topic, "topic_id", None) or NO_ID
            topics[topic.name] = SourceTopic(str(topic.name), topic_id, topic.is_internal, partitions)
    nodes = {int(node.node_id): (node.host, int(node.port)) for node in answer.brokers}
    return SourceCluster(answer.cluster_id, nodes, topics)


def listed_offsets(answer: Any) -> dict[Key, Asked]:
    return {
        (topic.name, int(one.partition_index)): Asked(one.error_code, int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
    }


def epoch_ends(answer: Any) -> dict[Key, Asked]:
    """Of a response to OffsetForLeaderEpoch."""
    return {
        (topic.topic, int(one.partition)): Asked(one.error_code, int(one.end_offset), int(one.leader_epoch))
        for topic in answer.topics
        for one in topic.partitions
    }


# Fetch: records are views of the response.


class FetchFrom(NamedTuple):
    """A partition in the request, in the protocol's words. topic_id: zero where it is not known; epochs: -1."""

    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchCall(NamedTuple):
    """A request. session: (id, epoch), (0, -1) without one. Sizes in bytes."""

    session: tuple[int, int]
    partitions: Sequence[tuple[Key, FetchFrom]]
    forgotten: Sequence[tuple[Key, uuid.UUID]]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0


class Fetched(NamedTuple):
    """Answer for a partition. topic: its name or, from version 13 on, its id. error: as in Asked.
    diverging: (epoch, end offset) of the leader's log where it is not what the client says it has."""

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class FetchAnswer(NamedTuple):
    """A response. throttle_ms: for so long the client is to be quiet."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[Fetched]


def encode_fetch(call: FetchCall, version: int) -> bytes:
    """The body of the request, which reads committed and uncommitted records alike."""
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
    """Read a response. most: partitions that it may have. Raises MalformedRequest for what is none."""
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
        raise MalformedRequest(f"a response to Fetch has more than the {most} partitions that were asked for")
    throttle_ms = answer.throttle_time // timedelta(milliseconds=1)
    return FetchAnswer(throttle_ms, getattr(answer, "error_code", 0), getattr(answer, "session_id", 0), partitions)


def _diverging(partition: Any) -> tuple[int, int] | None:
    end = getattr(partition, "diverging_epoch", None)
    return None if end is None or end.epoch < 0 else (end.epoch, end.end_offset)
