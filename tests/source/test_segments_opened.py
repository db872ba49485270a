"""Planning and tasks open the segments that can hold wanted rows, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.read.log_end import LogEnd, find_log_end
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import (
    FIRST_TIMESTAMP,
    append,
    delete_partition,
    numbers,
    segment_offsets,
    write_batches,
)
from tests.source.helpers.made_logs import MadeBatch as Batch
from tests.source.helpers.planned import RECORDS, SEGMENT_BYTES, edges, planned

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET, TIMESTAMP = ("offset",), ("timestamp",)


def test_segments_outside_the_requested_offsets_are_never_opened(log_dir: Path, opened: list[int]) -> None:
    splits = planned(log_dir, startingOffsets='{"t":{"0":25}}', endingOffsets='{"t":{"0":60}}')
    assert edges(splits) == [(25, 60)]
    assert set(opened) == {20, 40, 80}  # 80: the last one tells where the log ends


def test_segments_outside_pushed_offsets_are_never_opened(log_dir: Path, opened: list[int]) -> None:
    assert edges(planned(log_dir, GreaterThanOrEqual(OFFSET, 25), LessThan(OFFSET, 30))) == [(25, 30)]
    assert set(opened) == {20, 80}


def test_task_opens_the_segments_of_its_range_and_no_others(log_dir: Path, opened: list[int]) -> None:
    scan = Load(log_dir, maxPartitionBytes=SEGMENT_BYTES).scan()
    assert edges(scan.splits) == [(0, 20), (20, 40), (40, 60), (60, 80), (80, 100)]
    for split, task in zip(scan.splits, scan.tasks(), strict=True):
        opened.clear()
        assert sum(batch.num_rows for batch in task) == split.range.size
        assert set(opened) == {split.range.start}  # a range that ends before the last segment needs no log end


@pytest.fixture
def ends_found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions in whose last segment the end of the log is looked for, in order."""
    found: list[str] = []

    def spy(file: SegmentFile, *args: Any, **keywords: Any) -> LogEnd:
        found.append(str(file.topic_partition))
        return find_log_end(file, *args, **keywords)

    monkeypatch.setattr("kafkalog_spark.log.read.partition_log.find_log_end", spy)
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([EqualTo(("partition",), 1)], ["t-1"]),
        ([EqualTo(("topic",), "u")], ["u-0"]),
        ([EqualTo(("topic",), "t"), EqualTo(("partition",), 0)], ["t-0"]),
        ([GreaterThan(OFFSET, 50), LessThan(OFFSET, 50)], []),
    ],
    ids=["partition", "topic", "both", "nothing"],
)
def test_log_end_of_partitions_that_filters_exclude_is_not_searched(
    log_dir: Path, opened: list[int], ends_found: list[str], wanted: list[Filter], expected: list[str]
) -> None:
    append(log_dir, "t", 1, numbers(0, 5))
    append(log_dir, "u", 0, numbers(0, 5))
    splits = planned(log_dir, *wanted)
    assert [f"{split.range.topic}-{split.range.partition}" for split in splits] == expected
    assert ends_found == expected
    assert bool(opened) is bool(expected)


def test_explicit_offsets_must_name_partitions_that_a_pushed_filter_excludes(log_dir: Path) -> None:
    append(log_dir, "t", 1, numbers(0, 5))
    one = EqualTo(("partition",), 1)
    assert edges(planned(log_dir, one, startingOffsets='{"t":{"0":7,"1":3}}')) == [(3, 5)]
    with pytest.raises(OptionError, match="not specified: Set\\(t-0\\)"):
        planned(log_dir, one, startingOffsets='{"t":{"1":3}}')


def test_contradicting_filter_makes_no_task(log_dir: Path) -> None:
    assert planned(log_dir, GreaterThan(OFFSET, 50), LessThan(OFFSET, 50)) == []
    assert Load(log_dir, pushdown=True).scan(EqualTo(("topic",), "none")).read().num_rows == 0


def test_closed_segments_older_than_a_pushed_timestamp_are_skipped(log_dir: Path) -> None:
    at = EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + 65)
    splits = planned(log_dir, GreaterThanOrEqual(TIMESTAMP, at))
    assert [(s.range.start, s.range.end, s.range.end_is_latest) for s in splits] == [(60, 100, True)]


@pytest.mark.local_only("planning asks less where each look is a request")
def test_time_index_moves_the_start_to_the_batch_after_its_entry(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))  # record n has FIRST_TIMESTAMP + n, ten to a batch
    for ms in (69, 70, 71):
        wanted = GreaterThanOrEqual(TIMESTAMP, EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + ms))
        scan = Load(tmp_path, pushdown=True).scan(wanted)
        assert edges(scan.splits) == [(60 if ms == 69 else 70, 100)]
        assert scan.read()["offset"].to_pylist() == [*range(ms, 100)]


@pytest.mark.local_only("planning asks less where each look is a request")
def test_closed_segments_after_the_last_wanted_timestamp_are_skipped(tmp_path: Path, opened: list[int]) -> None:
    times = [[50] * 10, [99] * 10, [10] * 10, [20] * 10]
    write_batches(tmp_path, "t", 0, [Batch(numbers(0, 10), t, roll_first=True) for t in times])
    at = EPOCH + timedelta(milliseconds=60)
    fixed = planned(tmp_path, GreaterThanOrEqual(TIMESTAMP, at), endingOffsets='{"t":{"0":30}}')
    assert edges(fixed) == [(10, 20)]
    assert Load(tmp_path, pushdown=True).scan(GreaterThanOrEqual(TIMESTAMP, at)).read()["offset"].to_pylist() == [
        *range(10, 20)
    ]


def test_planning_a_thousand_segments_opens_each_once_and_packs_them(tmp_path: Path, opened: list[int]) -> None:
    batch = Batch(["x"], [FIRST_TIMESTAMP])
    write_batches(tmp_path, "t", 0, [batch] * 1000, segment_bytes=80)
    assert len(segment_offsets(tmp_path, "t", 0)) == 1000
    assert edges(planned(tmp_path)) == [(0, 1000)]
    assert len(opened) == 1001  # the last one also to find the log's end
    opened.clear()
    assert edges(planned(tmp_path, startingOffsets='{"t":{"0":990}}')) == [(990, 1000)]
    assert len(opened) == 11
    assert len(planned(tmp_path, maxPartitionBytes=1)) == 1000


def test_segment_deleted_after_the_listing_is_left_to_the_task(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionLog.open_segment

    def gone(self: PartitionLog, index: int):
        if self.segments[index].base_offset == 0:
            raise FileNotFoundError(0)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", gone)
    assert edges(planned(log_dir)) == [(0, 100)]


def test_deleted_partition_gets_no_task(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    append(tmp_path, "u", 0, numbers(0, 3))
    load = Load(tmp_path)
    delete_partition(tmp_path, "u", 0)
    assert [split.range.topic for split in load.scan().splits] == ["t"]
