"""Producer snapshots (.snapshot): state of a log's producers, up to the offset in the file's name.

ProducerStateManager, version 1, big-endian:

    byte 0  version i16 = 1
         2  crc     u32      CRC-32C of everything from byte 6 on
         6  count   i32
        10  entries, 46 bytes each: producerId i64, producerEpoch i16, lastSequence i32, lastOffset i64,
            offsetDelta i32, timestamp i64 (ms), coordinatorEpoch i32, currentTxnFirstOffset i64

A snapshot has only the last batch of each producer: its sequences and offsets.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_spark.errors import CorruptSnapshot, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_bytes, replace_file
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.layout import NO_SEQUENCE
from kafkalog_spark.format.regular_file import parsed, read_whole

VERSION = 1
NO_TRANSACTION = -1

MAX_SNAPSHOT_BYTES = 128 << 20
"""Largest snapshot in bytes: it has room for almost three million producers of one partition."""
_HEAD = struct.Struct(">hIi")
_CRC_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_HINT = "Kafka drops such a snapshot and uses an older one"


class ProducerEntry(NamedTuple):
    """State of a producer.

    Attributes:
        last_sequence: Of its last batch; -1 if the log has only markers of the producer.
        last_offset: Of its last batch; -1 if the log has only markers of the producer.
        offset_delta: Last minus first offset of its last batch.
        timestamp: Largest timestamp of its last batch, or that of the last marker, in ms.
        coordinator_epoch: -1 without transactions.
        transaction_first_offset: First offset of its open transaction; -1 without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def first_sequence(self) -> int:
        """First sequence of its last batch. 0 follows 2^31-1, even within a batch (Kafka: DefaultRecordBatch)."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + 2**31

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def has_open_transaction(self) -> bool:
        return self.transaction_first_offset != NO_TRANSACTION


def parse_producer_snapshot(data: bytes) -> list[ProducerEntry]:
    """Parse the entries.

    Raises:
        CorruptSnapshot: If the file is truncated, or has a wrong CRC or count.
        UnsupportedFormat: For an unknown version.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(
            f"a snapshot has at least {_HEAD.size} bytes, this one has {len(data)}", position=0, hint=_HINT
        )
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise UnsupportedFormat(f"version {version} of a producer snapshot, only {VERSION} is known", position=0)
    computed = crc32c(memoryview(data)[_CRC_FROM:])
    if computed != crc:
        raise CorruptSnapshot(f"the CRC-32C is {computed:#010x}, the file says {crc:#010x}", position=2, hint=_HINT)
    size = _HEAD.size + count * _ENTRY.size
    if count < 0 or size != len(data):
        raise CorruptSnapshot(
            f"{count} entries need {size} bytes, the file has {len(data)}", position=_CRC_FROM, hint=_HINT
        )
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]


def open_transactions(producers: Sequence[ProducerEntry]) -> dict[int, int]:
    """Return the first offset by producer id of the open transactions."""
    return {entry.producer_id: entry.transaction_first_offset for entry in producers if entry.has_open_transaction}


def format_producer_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    body = struct.pack(">i", len(entries)) + b"".join(_ENTRY.pack(*entry) for entry in entries)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def read_producer_snapshot(path: str | os.PathLike[str]) -> list[ProducerEntry]:
    """Read and parse a snapshot, see `parse_producer_snapshot`.

    Raises:
        FileNotFoundError: If it does not exist. A missing snapshot is not an empty one.
        CorruptFile: If it is too large.
    """
    return parsed(lambda size: read_whole(path, size), parse_producer_snapshot, os.fspath(path), MAX_SNAPSHOT_BYTES)


def write_producer_snapshot(
    path: str | os.PathLike[str], entries: Sequence[ProducerEntry], *, sync: bool = True
) -> None:
    """Replace a snapshot. The flush of the log fsyncs the directory, for all new names together.

    Args:
        sync: Fsync the bytes before the file gets its name. Otherwise, until the caller has fsynced the file, a power
            cut may leave it empty; loading ignores such a file.

    Raises:
        OSError: If the file cannot be written.
    """
    data = format_producer_snapshot(entries)
    if sync:
        replace_bytes(path, data)
    else:
        replace_file(path, data, sync=False)
