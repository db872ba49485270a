"""Tasks look for the end of the log from where planning found it, and never trust that place blindly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import CorruptBatch, DataLoss, OffsetOutOfRange
from kafkalog_spark.log.read.log_end import LogEnd, find_log_end
from kafkalog_spark.log.read.segment_file import SegmentFile
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, MadeBatch, append, delete_partition, numbers, write_batches

RECORDS = 1000
BATCH = 10


@pytest.fixture
def unindexed(tmp_path: Path) -> Path:
    """Topic t, one partition, one segment of a hundred batches of one size, and no entry in its index."""
    write(tmp_path, range(RECORDS))
    return tmp_path


def write(path: Path, offsets: range) -> None:
    batches = [
        MadeBatch([f"{i:04}" for i in range(at, at + BATCH)], [FIRST_TIMESTAMP] * BATCH) for at in offsets[::BATCH]
    ]
    write_batches(path, "t", 0, batches, index_interval_bytes=1 << 30)


def log_file(path: Path) -> Path:
    return path / "t-0" / f"{0:020d}.log"


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def texts(start: int, end: int) -> list[str]:
    return [f"{i:04}" for i in range(start, end)]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each time that the end of a log is looked for, the bytes that were read for it."""
    seen: list[int] = []

    def spy(file: SegmentFile, *args: Any, **keywords: Any) -> LogEnd:
        before = file.bytes_read
        found = find_log_end(file, *args, **keywords)
        seen.append(file.bytes_read - before)
        return found

    monkeypatch.setattr("kafkalog_spark.log.read.partition_log.find_log_end", spy)
    return seen


def test_task_does_not_repeat_the_search_for_the_end_of_the_log(unindexed: Path, searched: list[int]) -> None:
    size = log_file(unindexed).stat().st_size
    scan = Load(unindexed, minPartitions=4).scan()
    assert len(searched) == 1
    assert searched.pop() > size
    assert values(scan.read()) == texts(0, RECORDS)
    assert len(searched) == 4
    assert max(searched) < 4 * size // (RECORDS // BATCH)  # two reads of a header, two of the last batch


def test_records_appended_since_are_found_from_the_planned_end(unindexed: Path, searched: list[int]) -> None:
    size = log_file(unindexed).stat().st_size
    scan = Load(unindexed).scan()
    write(unindexed, range(RECORDS, RECORDS + 20))
    searched.clear()
    assert values(scan.read()) == texts(0, RECORDS + 20)
    assert max(searched) < size // 10


def truncate(path: Path, batches: int) -> None:
    os.truncate(log_file(path), log_file(path).stat().st_size * batches // (RECORDS // BATCH))


@pytest.mark.parametrize("left", [0, 40, 99])
def test_truncation_before_the_planned_end_is_detected(unindexed: Path, left: int) -> None:
    late = Load(unindexed).scan()
    fixed = Load(unindexed, startingOffsets='{"t":{"0":0}}', endingOffsets='{"t":{"0":1000}}')
    strict = fixed.scan()
    forgiving = Load(unindexed, failOnDataLoss=False, endingOffsets='{"t":{"0":1000}}').scan()
    assert late.splits[0].known_end is not None
    truncate(unindexed, left)
    assert values(late.read()) == values(forgiving.read()) == texts(0, left * BATCH)
    with pytest.raises(DataLoss, match=rf"the log holds \[0, {left * BATCH}\)"):
        strict.read()


def test_different_batch_at_the_planned_end_is_not_taken_for_the_end(unindexed: Path) -> None:
    scan = Load(unindexed, minPartitions=2).scan()
    # all batches are of one size: what was written anew, from another offset on, fills the same positions
    truncate(unindexed, 40)
    data = log_file(unindexed).read_bytes()
    write(unindexed / "other", range(RECORDS))
    renumbered = bytearray(log_file(unindexed / "other").read_bytes()[len(data) :])
    size = len(renumbered) // 60
    for at in range(0, len(renumbered), size):
        renumbered[at : at + 8] = (int.from_bytes(renumbered[at : at + 8], "big") + 500).to_bytes(8, "big")
    log_file(unindexed).write_bytes(data + renumbered)
    assert scan.read()["offset"].to_pylist() == [*range(400), *range(900, 1500)]


def test_damaged_last_batch_is_a_torn_tail_with_or_without_a_planned_end(unindexed: Path) -> None:
    scan = Load(unindexed).scan()
    data = bytearray(log_file(unindexed).read_bytes())
    data[-1] ^= 1
    log_file(unindexed).write_bytes(data)
    assert values(scan.read()) == texts(0, RECORDS - BATCH)
    write(unindexed / "more", range(RECORDS + BATCH))
    log_file(unindexed).write_bytes(bytes(data) + log_file(unindexed / "more").read_bytes()[len(data) :])
    with pytest.raises(CorruptBatch, match="so this is damage"):
        scan.read()


def test_recreated_partition_is_not_read_as_the_planned_one(unindexed: Path) -> None:
    scan = Load(unindexed, startingOffsets='{"t":{"0":500}}').scan()
    delete_partition(unindexed, "t", 0)
    append(unindexed, "t", 0, numbers(0, 3))
    with pytest.raises(OffsetOutOfRange, match="start offset 500 is greater than the resolved end offset 3"):
        scan.read()


def test_planned_end_in_a_segment_rolled_since_is_not_used(unindexed: Path) -> None:
    scan = Load(unindexed).scan()
    append(unindexed, "t", 0, ["1000", "1001"], roll_first=True)
    assert values(scan.read()) == [*texts(0, RECORDS), "1000", "1001"]
