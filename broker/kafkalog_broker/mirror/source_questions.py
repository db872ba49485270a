"""What a mirror asks a leader besides its batches."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
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


async def ask_metadata(connection: SourceConnection) -> SourceCluster:
    """All topics. Raises SourceUnreachable, MalformedRequest."""
    version = _version(connection, METADATA)
    return read_metadata(await connection.call(METADATA, version, metadata_body(version)), version)


async def ask_offsets(connection: SourceConnection, keys: list[Key], timestamp: int) -> dict[Key, Asked]:
    """EARLIEST or LATEST of partitions that the node leads. Raises as ask_metadata."""
    version = _version(connection, LIST_OFFSETS)
    body = list_offsets_body(keys, timestamp, version)
    return read_list_offsets(await connection.call(LIST_OFFSETS, version, body), version)


async def log_bounds(connection: SourceConnection, key: Key) -> tuple[int, int]:
    """(log start offset, high watermark) of a partition at its leader. Raises as ask_metadata, BrokerError."""
    return await _one_offset(connection, key, EARLIEST), await _one_offset(connection, key, LATEST)


async def _one_offset(connection: SourceConnection, key: Key, timestamp: int) -> int:
    asked = (await ask_offsets(connection, [key], timestamp)).get(key)
    if asked is None or asked.error:
        number = -1 if asked is None else asked.error
        code = error_code(number) or ErrorCode.unknown_server_error
        raise BrokerError(
            code, f"the source answers ListOffsets with {error_text(number)}", topic_partition="{}-{}".format(*key)
        )
    return asked.offset


async def end_of_epoch(connection: SourceConnection, key: Key, epoch: int) -> Asked | None:
    """Where a leader epoch ends at the leader; None when it does not say (before 2.1, or nobody may ask)."""
    version = connection.version(OFFSET_FOR_LEADER_EPOCH)
    if version is None:
        return None
    body = await connection.call(OFFSET_FOR_LEADER_EPOCH, version, epoch_ends_body({key: epoch}, version))
    asked = read_epoch_ends(body, version).get(key)
    return None if asked is None or asked.error else asked


def _version(connection: SourceConnection, api_key: int) -> int:
    version = connection.version(api_key)
    if version is None:
        raise SourceUnreachable(
            f"{connection.address} serves no version of API {api_key} that a mirror speaks",
            hint="the source must be Kafka 0.11 or newer",
        )
    return version
