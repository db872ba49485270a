"""Partition directory of a few batches, one of them bad, and helpers to read it. BEFORE, HONEST and AFTER hold
offsets 0-4, 5-9 and 10-14."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"


TIME = 1_700_000_000_000


def records(first: int, count: int = 5, size: int = 10) -> list[V2Record]:
    return [V2Record(at, TIME + at, b"key", b"v" * size, ((b"name", b"value"),)) for at in range(first, first + count)]


BEFORE, HONEST, AFTER = (batch(first, records(first)) for first in (0, 5, 10))
LARGE = batch(5, records(5, size=400))  # in place of HONEST; more than the sweep checks by itself


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def write_segments(root: Path, segments: dict[int, bytes]) -> Path:
    """A partition directory with these .log files, by base offset."""
    directory = root / NAME
    directory.mkdir(parents=True, exist_ok=True)
    for base, data in segments.items():
        log_path(directory, base).write_bytes(data)
    return directory


def log_path(directory: Path, base: int = 0) -> Path:
    return directory / f"{segment_name(base)}.log"


def open_log(directory: Path, recovery_point: int | None = None) -> PartitionLog:
    return PartitionLog(PartitionLocation(TOPIC, PARTITION, str(directory)), hints=OpenHints(recovery_point))


def read_all(
    directory: Path, recovery_point: int | None = None, columns: Sequence[str] = ALL_COLUMNS, **request: Any
) -> list[dict[str, Any]]:
    """Return every row, or raise the error of any step of reading."""
    log = open_log(directory, recovery_point)
    batches: list[pa.RecordBatch] = []
    batches += scan_partition(
        log, log.log_start_offset, log.log_end_offset, ScanRequest(columns=tuple(columns), **request)
    )
    return plain_rows(batches)


def check_place(error: KafkalogError, directory: Path, position: int, offset: int | None, base: int = 0) -> None:
    """Check that the error has its location as attributes and in its text, which is one line."""
    path = str(log_path(directory, base))
    assert (error.topic_partition, error.path, error.position) == (NAME, path, position)
    assert str(error).startswith(f"{NAME} {path} at byte {position} ")
    assert "\n" not in str(error)
    if offset is not None:
        assert error.offset == offset
        assert f"(offset {offset})" in str(error)
