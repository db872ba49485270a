"""Offsets and epochs that a source is asked for."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.source import Source, SourceConnection
from kafkalog_broker.mirror.source_bounds import UNKNOWN, ImpossibleAnswer, check_epoch, check_log_bounds, check_offset
from kafkalog_broker.mirror.source_errors import PASSING, error_text
from kafkalog_broker.protocol.mirror_messages import (
    CONSUMER,
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Asked,
    Key,
    SourceCluster,
    SourceTopic,
    epoch_ends,
    listed_offsets,
)

_log = logging.getLogger(__name__)

_NOT_ANSWERED = Asked(ErrorCode.unknown_server_error, UNKNOWN)


async def ask_offsets(connection: SourceConnection, keys: Collection[Key], timestamp: int) -> dict[Key, Asked]:
    """EARLIEST or LATEST, the high watermark, of partitions that the node leads. Raises SourceUnreachable."""
    by_topic: dict[str, list[Any]] = {}
    for name, index in keys:
        by_topic.setdefault(name, []).append({"partition_index": index, "timestamp": timestamp})
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    answered = await connection.call(LIST_OFFSETS, listed_offsets, replica_id=CONSUMER, topics=topics)
    return {key: answered.get(key, _NOT_ANSWERED) for key in keys}


async def log_bounds(connection: SourceConnection, key: Key) -> tuple[int, int]:
    """(log start offset, high watermark) at the leader. Raises SourceUnreachable, BrokerError, ImpossibleAnswer."""
    start, high_watermark = [
        answered_offset((await ask_offsets(connection, [key], timestamp))[key]) for timestamp in (EARLIEST, LATEST)
    ]
    check_log_bounds(start, high_watermark)
    return start, high_watermark


def answered_offset(asked: Asked) -> int:
    """Raises BrokerError, ImpossibleAnswer."""
    if asked.error:
        code = asked.error if isinstance(asked.error, ErrorCode) else ErrorCode.unknown_server_error
        raise BrokerError(code, f"the source answers ListOffsets with {error_text(asked.error)}")
    return check_offset("one of its offsets", asked.offset)


async def end_of_epoch(connection: SourceConnection, key: Key, epoch: int) -> Asked | None:
    """Where a leader epoch ends at the leader; None when it does not say (before 2.1, or nobody may ask). Raises
    SourceUnreachable, ImpossibleAnswer."""
    if connection.version(OFFSET_FOR_LEADER_EPOCH) is None:
        return None
    name, index = key
    asked_for = {"partition": index, "current_leader_epoch": UNKNOWN, "leader_epoch": epoch}
    topics = [{"topic": name, "partitions": [asked_for]}]
    answered = await connection.call(OFFSET_FOR_LEADER_EPOCH, epoch_ends, replica_id=CONSUMER, topics=topics)
    asked = answered.get(key)
    if asked is None or asked.error:
        return None
    check_epoch("the leader epoch that was asked for", asked.epoch)
    check_offset("the end of a leader epoch", asked.offset, UNKNOWN)
    return asked


async def find_ends(
    source: Source, cluster: SourceCluster, topics: Mapping[str, SourceTopic]
) -> tuple[dict[Key, int], dict[str, str]] | None:
    """What a mirror with --once is to reach: the high watermarks there are now, and why there is none, by the
    partition's name; None while a partition has no leader, or one that is not ready. Raises SourceUnreachable."""
    ends: dict[Key, int] = {}
    failed: dict[str, str] = {}
    by_leader: dict[int, list[Key]] = {}
    for name, topic in topics.items():
        for partition, place in topic.partitions.items():
            by_leader.setdefault(place.leader, []).append((name, partition))
    for node, keys in by_leader.items():
        if node not in cluster.nodes:
            return None
        connection = await source.connect(cluster.nodes[node])
        try:
            answered = await ask_offsets(connection, keys, LATEST)
        finally:
            await connection.aclose()
        for key, asked in answered.items():
            try:
                ends[key] = answered_offset(asked)
            except (BrokerError, ImpossibleAnswer) as error:
                _log.warning("%s-%d: %s", *key, error)
                if asked.error in PASSING:
                    return None
                failed["{}-{}".format(*key)] = str(error)
    return ends, failed
