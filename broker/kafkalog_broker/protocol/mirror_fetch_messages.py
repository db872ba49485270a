"""Fetch requests of a mirror to its source cluster, and their responses.

A mirror uses version 5 (Kafka 0.11) to 13 (topic IDs, Kafka 3.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.client_messages import read_response, request_body
from kafkalog_broker.protocol.message_codecs import MAX_ELEMENTS
from kafkalog_broker.protocol.mirror_messages import CONSUMER, FETCH, NO_ID, Key

FIRST_SESSION_VERSION, FIRST_TOPIC_ID_VERSION = 7, 13


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
