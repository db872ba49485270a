"""The ranges of the tasks: they cover what is asked for once, and which sides stay late-bound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThanOrEqual, In, LessThan

from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import append, numbers
from tests.source.helpers.planned import RECORDS, SEGMENT_BYTES, edges, planned

OFFSET = ("offset",)


def late(splits: Sequence[Split]) -> list[tuple[bool, bool]]:
    return [(split.range.start_is_earliest, split.range.end_is_latest) for split in splits]


def test_only_the_first_and_last_task_keep_late_bounds(log_dir: Path) -> None:
    splits = planned(log_dir, maxPartitionBytes=SEGMENT_BYTES)
    assert late(splits) == [(True, False), *[(False, False)] * 3, (False, True)]
    assert all(split.range.from_earliest for split in splits)


def test_explicit_offsets_are_not_late_bound(log_dir: Path) -> None:
    splits = planned(log_dir, startingOffsets='{"t":{"0":0}}', endingOffsets='{"t":{"0":100}}')
    assert late(splits) == [(False, False)]
    splits = planned(log_dir, startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":-1}}')
    assert late(splits) == [(True, True)]


def test_empty_partition_gets_a_task_for_later_records(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, [])
    splits = planned(tmp_path)
    assert (edges(splits), late(splits)) == ([(0, 0)], [(True, True)])


def test_pushed_end_within_the_log_is_not_late_bound_and_one_beyond_it_is(log_dir: Path) -> None:
    assert late(planned(log_dir, LessThan(OFFSET, 50))) == [(True, False)]
    assert late(planned(log_dir, LessThan(OFFSET, 100))) == [(True, False)]
    assert late(planned(log_dir, LessThan(OFFSET, 101))) == [(True, True)]


def test_start_moved_by_a_filter_is_not_late_bound(log_dir: Path) -> None:
    splits = planned(log_dir, GreaterThanOrEqual(OFFSET, 30))
    assert (edges(splits), late(splits)) == ([(30, 100)], [(False, True)])
    assert splits[0].range.from_earliest  # retention may pass it by


def test_min_partitions_splits_tasks_further(log_dir: Path) -> None:
    assert len(planned(log_dir, minPartitions=7)) >= 7
    assert len(planned(log_dir, minPartitions=3, maxPartitionBytes=SEGMENT_BYTES)) == 5


def test_max_records_per_partition_bounds_every_task(log_dir: Path) -> None:
    splits = planned(log_dir, maxRecordsPerPartition=15, maxPartitionBytes=SEGMENT_BYTES)
    assert max(split.range.size for split in splits) <= 15
    assert len(splits) == 10


@st.composite
def plans(draw: st.DrawFn) -> dict[str, object]:
    options: dict[str, object] = {"maxPartitionBytes": draw(st.sampled_from([1, 200, 500, 1000, 1 << 20]))}
    low, high = sorted([draw(st.integers(0, RECORDS)), draw(st.integers(0, RECORDS))])
    if draw(st.booleans()):
        options["startingOffsets"] = json.dumps({"t": {"0": low, "1": -2}})
    if draw(st.booleans()):
        options["endingOffsets"] = json.dumps({"t": {"0": high, "1": -1}})
    if draw(st.booleans()):
        options["minPartitions"] = draw(st.integers(1, 40))
    if draw(st.booleans()):
        options["maxRecordsPerPartition"] = draw(st.integers(1, 120))
    return options


@pytest.fixture(scope="module")
def two_partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t-0: 100 records in 5 segments; t-1: 30 in one."""
    path = tmp_path_factory.mktemp("two")
    append(path, "t", 0, numbers(0, RECORDS), segment_bytes=SEGMENT_BYTES)
    append(path, "t", 1, numbers(0, 30))
    return path


@given(options=plans())
def test_tasks_cover_the_range_without_overlap(two_partitions: Path, options: dict[str, object]) -> None:
    texts = {"path": str(two_partitions), "allTopics": "true", **{name: str(value) for name, value in options.items()}}
    splits = plan(parse_read_options(texts), RowFilter())
    for partition, size in ((0, RECORDS), (1, 30)):
        ranges = [split.range for split in splits if split.range.partition == partition]
        start = json.loads(str(options.get("startingOffsets", "{}"))).get("t", {}).get(str(partition), -2)
        end = json.loads(str(options.get("endingOffsets", "{}"))).get("t", {}).get(str(partition), -1)
        expected = (max(start, 0), size if end == -1 else end)
        covered = [offset for r in ranges for offset in range(r.start, r.end)]
        assert covered == list(range(*expected))
        assert [r.end_is_latest for r in ranges[:-1]] == [False] * len(ranges[:-1])
        assert [r.start_is_earliest for r in ranges[1:]] == [False] * len(ranges[1:])
        if end == -1:
            assert ranges[-1].end_is_latest
        if start == -2 and ranges:
            assert ranges[0].start_is_earliest


@given(wanted=st.sets(st.integers(-5, RECORDS + 5), min_size=1, max_size=6), size=st.sampled_from([1, 500, 1 << 20]))
def test_pushed_in_list_of_offsets_narrows_tasks_without_loss(
    two_partitions: Path, wanted: set[int], size: int
) -> None:
    load = Load(two_partitions, assign='{"t":[0]}', pushdown=True, maxPartitionBytes=size)
    scan = load.scan(In(OFFSET, tuple(sorted(wanted))))
    assert scan.residual == []
    assert scan.read()["offset"].to_pylist() == sorted(wanted & set(range(RECORDS)))
    held = [split.range for split in scan.splits if split.range.size]
    assert all(r.start >= min(wanted) and r.end <= max(wanted) + 1 for r in held)
