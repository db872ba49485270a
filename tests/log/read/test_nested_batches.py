"""Values that hold whole batches, and offset indexes that point into them: never a row of the log."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.write.record_encoder import BatchParams
from tests.log.helpers.encoded_batches import encode_batches

RECORDS = 30


def batch(offset: int, value: bytes) -> bytes:
    return next(encode_batches(pa.table({"value": [value]}), offset, BatchParams(), now_ms=1)).data


@pytest.fixture
def log_with_nested_batches(tmp_path: Path) -> tuple[Path, dict[int, int], dict[int, int]]:
    """(log directory, position of each batch, position of the batch inside its value), by offset."""
    data, outer, inner = b"", {}, {}
    for offset in range(RECORDS):
        nested = batch(offset + 3, b"not of this log")
        whole = batch(offset, b"-" * 50 + nested + b"-" * 50)
        outer[offset], inner[offset] = len(data), len(data) + whole.index(nested)
        data += whole
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(data)
    return tmp_path, outer, inner


def read(directory: Path, start: int, end: int) -> list[int]:
    log = LogDirs.open(directory).partition("t", 0)
    assert log.log_end_offset == RECORDS
    batches = scan_partition(log, start, end, ScanRequest(columns=("offset",)))
    return [offset for found in batches for offset in found.column(0).to_pylist()]


def write_index(directory: Path, entries: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">ii", offset, position) for offset, position in entries)
    (directory / "t-0" / f"{0:020d}.index").write_bytes(data)


@pytest.mark.parametrize("shift", [-5, -1, 0, 1, 2, 4, 5])
def test_index_entry_pointing_into_a_value_is_rejected(
    log_with_nested_batches: tuple[Path, dict[int, int], dict[int, int]], shift: int
) -> None:
    directory, outer, inner = log_with_nested_batches
    # true entries but for the tenth and the last one, whose positions lie in a value
    entries = [(offset, outer[offset]) for offset in range(1, RECORDS)]
    for victim in (10, RECORDS - 2):
        entries[victim] = (victim + 1, inner[victim + shift] if victim + shift < RECORDS else outer[victim + 1])
    write_index(directory, entries)
    for start, end in [(0, RECORDS), (11, RECORDS), (12, 20), (RECORDS - 1, RECORDS)]:
        assert read(directory, start, end) == list(range(start, end))


def test_scan_of_nested_batches_returns_only_the_outer_records(
    log_with_nested_batches: tuple[Path, dict[int, int], dict[int, int]],
) -> None:
    directory, _, _ = log_with_nested_batches
    assert read(directory, 0, RECORDS) == list(range(RECORDS))
