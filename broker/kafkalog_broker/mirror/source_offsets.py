"""Queries of a source's offsets and leader epochs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.source import Source
from kafkalog_broker.mirror.source_bounds import UNKNOWN, ImpossibleOffsets, check_epoch, check_log_bounds, check_offset
from kafkalog_broker.mirror.source_connection import SourceConnection
from kafkalog_broker.mirror.source_errors import TRANSIENT, error_text
from kafkalog_broker.protocol.mirror_messages import (
    CONSUMER,
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Key,
    SourceCluster,
    SourceOffset,
    SourceTopic,
    epoch_ends,
    listed_offsets,
)

_log = logging.getLogger(__name__)

_MISSING_IN_RESPONSE = SourceOffset(ErrorCode.unknown_server_error, UNKNOWN)


async def list_offsets(connection: SourceConnection, keys: Collection[Key], timestamp: int) -> dict[Key, SourceOffset]:
    """Query the earliest or latest offsets of partitions that the node leads. LATEST is the high watermark.

    Raises SourceUnreachable.
    """
    by_topic: dict[str, list[Any]] = {}
    for name, index in keys:
        by_topic.setdefault(name, []).append({"partition_index": index, "timestamp": timestamp})
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    answered = await connection.call(LIST_OFFSETS, listed_offsets, replica_id=CONSUMER, topics=topics)
    return {key: answered.get(key, _MISSING_IN_RESPONSE) for key in keys}


async def log_bounds(connection: SourceConnection, key: Key) -> tuple[int, int]:
    """Return the leader's (log start offset, high watermark).

    Raises SourceUnreachable, BrokerError, ImpossibleOffsets.
    """
    start, high_watermark = [
        checked_offset((await list_offsets(connection, [key], timestamp))[key]) for timestamp in (EARLIEST, LATEST)
    ]
    check_log_bounds(start, high_watermark)
    return start, high_watermark


def checked_offset(answer: SourceOffset) -> int:
    """Return the offset of a response, after checking its error and bounds. Raises BrokerError, ImpossibleOffsets."""
    if answer.error:
        code = answer.error if isinstance(answer.error, ErrorCode) else ErrorCode.unknown_server_error
        raise BrokerError(code, f"the source responds to ListOffsets with {error_text(answer.error)}")
    return check_offset("one of its offsets", answer.offset)


async def end_of_epoch(connection: SourceConnection, key: Key, epoch: int) -> SourceOffset | None:
    """Query the end of a leader epoch in the leader's log.

    Returns:
        None if the leader does not disclose it: before Kafka 2.1, or without authorization.

    Raises:
        SourceUnreachable, ImpossibleOffsets: If the response is unusable.
    """
    if connection.version(OFFSET_FOR_LEADER_EPOCH) is None:
        return None
    name, index = key
    query = {"partition": index, "current_leader_epoch": UNKNOWN, "leader_epoch": epoch}
    topics = [{"topic": name, "partitions": [query]}]
    answered = await connection.call(OFFSET_FOR_LEADER_EPOCH, epoch_ends, replica_id=CONSUMER, topics=topics)
    answer = answered.get(key)
    if answer is None or answer.error:
        return None
    check_epoch("the leader epoch of the response", answer.epoch)
    check_offset("the end of a leader epoch", answer.offset, UNKNOWN)
    return answer


async def find_ends(
    source: Source, cluster: SourceCluster, topics: Mapping[str, SourceTopic]
) -> tuple[dict[Key, int], dict[str, str]] | None:
    """Query the high watermarks that a mirror with --once must reach.

    Returns:
        The offsets, and the errors by partition name; None while a partition has no leader that is ready.

    Raises:
        SourceUnreachable: If a node cannot be reached.
    """
    ends: dict[Key, int] = {}
    failed: dict[str, str] = {}
    by_leader: dict[int, list[Key]] = {}
    for name, topic in topics.items():
        for partition, location in topic.partitions.items():
            by_leader.setdefault(location.leader, []).append((name, partition))
    for node, keys in by_leader.items():
        if node not in cluster.nodes:
            return None
        connection = await source.connect(cluster.nodes[node])
        try:
            answered = await list_offsets(connection, keys, LATEST)
        finally:
            await connection.aclose()
        for key, answer in answered.items():
            try:
                ends[key] = checked_offset(answer)
            except (BrokerError, ImpossibleOffsets) as error:
                _log.warning("%s-%d: %s", *key, error)
                if answer.error in TRANSIENT:
                    return None
                failed["{}-{}".format(*key)] = str(error)
    return ends, failed
