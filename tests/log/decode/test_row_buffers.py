"""Buffers that are filled again, in the same scan and in later ones, and the limits of the row filter."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.kernels.rows import Rows
from kafkalog_spark.log.decode import row_memory
from kafkalog_spark.log.decode.row_buffers import BATCH_ROWS
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.write.record_encoder import BatchParams
from tests.log.helpers.batch_builder import GZIP, LOG_APPEND_TIME, NONE, V2Record, batch
from tests.log.helpers.damaged_log import open_log, write_segments
from tests.log.helpers.encoded_batches import encode_batches

LARGEST = 2**63 - 1


def many_records(directory: Path, batches: int, segments: int = 1, prefix: bytes = b"") -> Path:
    """Enough records for `batches` Arrow batches in each of `segments` segments, each value telling its offset."""
    count = batches * BATCH_ROWS
    data = {}
    for base in range(0, segments * count, count):
        values = pa.array([prefix + b"%07d" % n for n in range(base, base + count)], pa.binary())
        encoded = encode_batches(pa.table({"value": values}), base, BatchParams(), now_ms=1)
        data[base] = b"".join(each.data for each in encoded)
    return write_segments(directory, data)


FULL_BATCHES = ScanRequest(columns=("value",), first_batch_rows=BATCH_ROWS)
"""All buffer sets have the same size, that of the first batch too."""


@pytest.fixture
def new_sets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each buffer set for which memory is allocated."""
    sizes: list[int] = []
    new_rows = row_memory._new_rows

    def counted(limits: np.ndarray) -> Rows:
        rows = new_rows(limits)
        sizes.append(len(rows.value_offsets) - 1)
        return rows

    monkeypatch.setattr(row_memory, "_new_rows", counted)
    return sizes


def test_buffers_of_a_referenced_batch_are_not_reused(tmp_path: Path) -> None:
    log = open_log(many_records(tmp_path, 5))
    held = list(scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("value",))))
    assert len(held) > 4
    assert [value for found in held for value in found.column(0).to_pylist()] == [
        b"%07d" % n for n in range(5 * BATCH_ROWS)
    ]


def test_buffers_of_a_referenced_slice_are_not_reused(tmp_path: Path) -> None:
    log = open_log(many_records(tmp_path, 5))
    held, first = [], []
    for found in scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("value",))):
        held.append(found.column(0).slice(7, 1))
        first.append(found.column(0)[7].as_py())
    assert [column.to_pylist() for column in held] == [[value] for value in first]


def test_unreferenced_buffers_are_reused(tmp_path: Path) -> None:
    log = open_log(many_records(tmp_path, 8))
    places = set()
    for found in scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("value",))):
        places.add(found.column(0).buffers()[2].address)
        del found
    assert len(places) <= 4  # the small first batch, and two or three sets in turn


def test_unreferenced_buffers_are_reused_in_the_next_segment(tmp_path: Path, new_sets: list[int]) -> None:
    log = open_log(many_records(tmp_path, 1, segments=8))
    for found in scan_partition(log, 0, log.log_end_offset, FULL_BATCHES):
        del found
    assert new_sets in ([BATCH_ROWS] * 2, [BATCH_ROWS] * 3)  # two or three sets in turn


def test_unreferenced_buffers_are_reused_in_the_next_partition(tmp_path: Path, new_sets: list[int]) -> None:
    buffers = ScanBuffers()
    for batches, expected in ((4, [2, 3]), (5, [0]), (3, [0])):
        log = open_log(many_records(tmp_path / str(batches), batches))
        new_sets.clear()
        for found in scan_partition(log, 0, log.log_end_offset, FULL_BATCHES, buffers=buffers):
            del found
        assert len(new_sets) in expected


def test_referenced_buffers_are_not_reused_in_the_next_segment_or_partition(tmp_path: Path) -> None:
    buffers = ScanBuffers()
    held: list[pa.RecordBatch] = []
    prefixes = (b"first", b"second")
    for prefix in prefixes:
        log = open_log(many_records(tmp_path / prefix.decode(), 1, segments=3, prefix=prefix))
        held += scan_partition(log, 0, log.log_end_offset, FULL_BATCHES, buffers=buffers)
    assert len({found.column(0).buffers()[2].address for found in held}) == len(held)
    assert [value for found in held for value in found.column(0).to_pylist()] == [
        prefix + b"%07d" % n for prefix in prefixes for n in range(3 * BATCH_ROWS)
    ]


def test_buffers_of_a_large_row_are_released_after_its_batch(tmp_path: Path) -> None:
    large = 40 << 20
    data = b"".join(batch(n, [V2Record(n, 1, None, bytes(large if n == 1 else 10))]) for n in range(3))
    log = open_log(write_segments(tmp_path, {0: data}))
    kept = []
    scan = scan_partition(log, 0, 3, ScanRequest(columns=("value",), first_batch_rows=1))
    tracemalloc.start()
    try:
        for found in scan:
            size = found.column(0).nbytes
            del found
            kept.append((size > large, tracemalloc.get_traced_memory()[0]))
    finally:
        tracemalloc.stop()
    assert [is_large for is_large, _ in kept] == [False, True, False]
    assert kept[-1][1] - kept[0][1] < large // 2


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_record_with_the_largest_timestamp_is_returned(tmp_path: Path, codec: int, attributes: int) -> None:
    data = batch(0, [V2Record(0, LARGEST, None, b"v")], codec=codec, attributes=attributes)
    log = open_log(write_segments(tmp_path, {0: data}))
    for columns in (("offset", "value"), ("offset",)):
        batches = list(scan_partition(log, 0, 1, ScanRequest(columns=columns)))
        assert [found.num_rows for found in batches] == [1], columns
    late = ScanRequest(columns=("offset",), timestamp_from_ms=LARGEST)
    assert sum(found.num_rows for found in scan_partition(log, 0, 1, late)) == 1
    before = ScanRequest(columns=("offset",), timestamp_until_ms=LARGEST - 1)
    assert not list(scan_partition(log, 0, 1, before))


def test_range_with_its_end_before_its_start_accepts_no_timestamp(tmp_path: Path) -> None:
    data = batch(0, [V2Record(0, -1, None, b"v"), V2Record(1, 5, None, b"v")])
    log = open_log(write_segments(tmp_path, {0: data}))
    for begin, end in ((5, 5), (6, 5), (-(2**63), -(2**63))):
        request = ScanRequest(columns=("offset",), timestamp_from_ms=begin, timestamp_until_ms=end)
        assert not list(scan_partition(log, 0, 2, request))
