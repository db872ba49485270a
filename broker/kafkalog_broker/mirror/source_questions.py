"""What a mirror asks a leader besides its batches."""

from __future__ import annotations

from collections.abc import Collection

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.answer_bounds import UNKNOWN, check_epoch, check_log_bounds, check_offset
from kafkalog_broker.mirror.fetch_outcome import error_code, error_text
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.protocol.fetch_client import Key
from kafkalog_broker.protocol.source_calls import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    Asked,
    SourceCluster,
    epoch_ends_body,
    list_offsets_body,
    metadata_body,
    read_epoch_ends,
    read_list_offsets,
    read_metadata,
)

_NOT_ANSWERED = Asked(ErrorCode.unknown_server_error.value, UNKNOWN)


async def ask_metadata(connection: SourceConnection) -> SourceCluster:
    """All topics. Raises SourceUnreachable."""
    version = _version(connection, METADATA)
    return await connection.call(METADATA, version, metadata_body(version), read_metadata)


async def ask_offsets(connection: SourceConnection, keys: Collection[Key], timestamp: int) -> dict[Key, Asked]:
    """EARLIEST or LATEST of partitions that the node leads, each of `keys`. Raises as ask_metadata."""
    version = _version(connection, LIST_OFFSETS)
    body = list_offsets_body(keys, timestamp, version)
    found = await connection.call(LIST_OFFSETS, version, body, read_list_offsets)
    return {key: found.get(key, _NOT_ANSWERED) for key in keys}


async def log_bounds(connection: SourceConnection, key: Key) -> tuple[int, int]:
    """(log start offset, high watermark) of a partition at its leader. Raises as ask_metadata, BrokerError,
    ImpossibleAnswer."""
    start, high_watermark = [
        answered_offset((await ask_offsets(connection, [key], timestamp))[key]) for timestamp in (EARLIEST, LATEST)
    ]
    check_log_bounds(start, high_watermark)
    return start, high_watermark


def answered_offset(asked: Asked) -> int:
    """Raises BrokerError, ImpossibleAnswer."""
    if asked.error:
        code = error_code(asked.error) or ErrorCode.unknown_server_error
        raise BrokerError(code, f"the source answers ListOffsets with {error_text(asked.error)}")
    return check_offset("one of its offsets", asked.offset)


async def end_of_epoch(connection: SourceConnection, key: Key, epoch: int) -> Asked | None:
    """Where a leader epoch ends at the leader; None when it does not say (before 2.1, or nobody may ask). Raises as
    ask_metadata, ImpossibleAnswer."""
    version = connection.version(OFFSET_FOR_LEADER_EPOCH)
    if version is None:
        return None
    body = epoch_ends_body({key: epoch}, version)
    asked = (await connection.call(OFFSET_FOR_LEADER_EPOCH, version, body, read_epoch_ends)).get(key)
    if asked is None or asked.error:
        return None
    check_epoch("the leader epoch that was asked for", asked.epoch)
    check_offset("the end of a leader epoch", asked.offset, UNKNOWN)
    return asked


def _version(connection: SourceConnection, api_key: int) -> int:
    version = connection.version(api_key)
    if version is None:
        raise SourceUnreachable(
            f"{connection.address} serves no version of API {api_key} that a mirror speaks",
            hint="the source must be Kafka 0.11 or newer",
        )
    return version
