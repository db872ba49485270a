"""From ranges of offsets to tasks: where segments are cut, which are opened, what stays late-bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.partition_log import PartitionLog
from kafkalog_spark.source.filters import RowFilter
from kafkalog_spark.source.options import parse_read_options
from kafkalog_spark.source.planning import Cut, SegmentFacts, Split, pack_segments, plan, splits_by_partition
from tests.source.driver import Load
from tests.source.made_logs import FIRST_TIMESTAMP, append, delete_partition, numbers, segment_offsets, write_batches
from tests.source.made_logs import MadeBatch as Batch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET, TIMESTAMP = ("offset",), ("timestamp",)
RECORDS = 100
SEGMENT_BYTES = 400  # two batches of ten small records


def planned(path: Path, *filters: Filter, **options: object) -> list[Split]:
    return Load(path, pushdown=bool(filters), **options).scan(*filters).splits


def edges(splits: Sequence[Split]) -> list[tuple[int, int]]:
    return [(split.range.start, split.range.end) for split in splits]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Topic t, one partition: 100 records in 10 batches in 5 segments of two batches; every batch after the first of a
    segment has an index entry."""
    append(tmp_path, "t", 0, numbers(0, RECORDS), segment_bytes=SEGMENT_BYTES)
    assert segment_offsets(tmp_path, "t", 0) == [0, 20, 40, 60, 80]
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Base offsets of the segments that are opened, in order."""
    seen: list[int] = []
    original = PartitionLog.open_segment

    def spy(self: PartitionLog, index: int):
        seen.append(self.segments[index].base_offset)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", spy)
    return seen


def batch_offsets(path: Path) -> list[int]:
    """First offsets of the batches of t-0, from the files."""
    log = LogDirs.open(path).partition("t", 0)
    found = []
    for index in range(len(log.segments)):
        with log.open_segment(index) as file:
            found += [header.base_offset for header in file.headers()]
    return found


# Segments and tasks


def test_segments_too_large_to_share_a_task_get_one_each(log_dir: Path) -> None:
    assert edges(planned(log_dir, maxPartitionBytes=SEGMENT_BYTES)) == [
        (0, 20),
        (20, 40),
        (40, 60),
        (60, 80),
        (80, 100),
    ]


def test_small_neighbours_share_a_task(log_dir: Path) -> None:
    assert edges(planned(log_dir)) == [(0, 100)]
    assert edges(planned(log_dir, maxPartitionBytes=1000)) == [(0, 60), (60, 100)]


def test_partitions_never_share_a_task(log_dir: Path) -> None:
    append(log_dir, "t", 1, numbers(0, 5))
    append(log_dir, "u", 0, numbers(0, 5))
    splits = planned(log_dir)
    assert [(*split.range.topic_partition, split.range.end) for split in splits] == [
        ("t", 0, 100),
        ("t", 1, 5),
        ("u", 0, 5),
    ]
    assert [split.place.directory for split in splits] == [str(log_dir / name) for name in ("t-0", "t-1", "u-0")]
    assert {tp: len(found) for tp, found in splits_by_partition(splits).items()} == {
        ("t", 0): 1,
        ("t", 1): 1,
        ("u", 0): 1,
    }


def test_large_segments_are_cut_at_batch_boundaries(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    cuts = [start for start, _ in edges(planned(tmp_path, maxPartitionBytes=400))]
    assert len(cuts) > 3
    assert cuts == sorted(set(cuts) & set(batch_offsets(tmp_path)))


def test_a_cut_carries_the_position_of_its_batch(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    first, *others = planned(tmp_path, maxPartitionBytes=400)
    assert first.hint is None
    log = LogDirs.open(tmp_path).partition("t", 0)
    with log.open_segment(0) as file:
        positions = {header.base_offset: header.position for header in file.headers()}
    assert [split.hint for split in others] == [(0, positions[split.range.start]) for split in others]
    assert all(second.hint[1] - one.hint[1] >= 400 for one, second in pairwise(others))  # type: ignore[index]


def test_what_follows_a_cut_segment_begins_a_task_of_its_own(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    append(tmp_path, "t", 0, numbers(0, 10), roll_first=True)
    assert (RECORDS, RECORDS + 10) in edges(planned(tmp_path, maxPartitionBytes=400))


def test_a_range_inside_a_large_segment_is_cut_only_there(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    found = edges(
        planned(
            tmp_path,
            maxPartitionBytes=200,
            startingOffsets='{"t":{"0":35}}',
            endingOffsets='{"t":{"0":77}}',
        )
    )
    assert found[0][0] == 35
    assert found[-1][1] == 77
    assert len(found) > 2
    assert {start for start, _ in found[1:]} <= set(batch_offsets(tmp_path))


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    for index in path.glob("*/*.index"):
        index.write_bytes(change(index.read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        # right offsets, positions one byte beside the batches
        lambda data: b"".join(
            data[i : i + 4] + (int.from_bytes(data[i + 4 : i + 8], "big") + 1).to_bytes(4, "big")
            for i in range(0, len(data), 8)
        ),
    ],
    ids=["empty", "zeros", "ones", "beside the batches"],
)
def test_a_segment_whose_index_proves_no_boundary_is_not_cut(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    spoil(tmp_path, change)
    assert edges(planned(tmp_path, maxPartitionBytes=200)) == [(0, RECORDS)]


def test_a_batch_with_a_wrong_crc_is_no_boundary(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    before = planned(tmp_path, maxPartitionBytes=400)
    target = before[1]
    assert target.hint is not None
    log = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[target.hint[1] + 70] ^= 1  # inside the records of that batch
    log.write_bytes(data)
    after = edges(planned(tmp_path, maxPartitionBytes=400))
    assert target.range.start not in [start for start, _ in after]
    assert len(after) > 1


def test_message_sets_are_not_cut(golden_legacy: Path) -> None:
    # of a wrapper message the header tells the last offset only
    found = edges(planned(golden_legacy, subscribe="v1-gzip", maxPartitionBytes=1))
    assert [start for start, _ in found] == segment_offsets(golden_legacy, "v1-gzip", 0)


def test_packing_fills_a_task_up_to_the_size_and_no_further() -> None:
    segments = [SegmentFacts(i * 10, i * 10 + 10, size) for i, size in enumerate([4, 4, 4, 11, 1, 9, 1])]
    assert [cut.offset for cut in pack_segments(segments, 10)] == [20, 30, 40, 60]


def test_packing_keeps_the_boundaries_inside_a_segment() -> None:
    inner = (Cut(13, 10, 100), Cut(16, 10, 200))
    segments = [SegmentFacts(0, 10, 5), SegmentFacts(10, 20, 30, inner), SegmentFacts(20, 30, 1)]
    assert list(pack_segments(segments, 10)) == [Cut(10, 10, 0), *inner, Cut(20, 20, 0)]


# Which segments are opened


def test_segments_outside_the_offsets_asked_for_are_never_opened(log_dir: Path, opened: list[int]) -> None:
    splits = planned(log_dir, startingOffsets='{"t":{"0":25}}', endingOffsets='{"t":{"0":60}}')
    assert edges(splits) == [(25, 60)]
    assert set(opened) == {20, 40, 80}  # 80: the last one tells where the log ends


def test_segments_outside_pushed_offsets_are_never_opened(log_dir: Path, opened: list[int]) -> None:
    assert edges(planned(log_dir, GreaterThanOrEqual(OFFSET, 25), LessThan(OFFSET, 30))) == [(25, 30)]
    assert set(opened) == {20, 80}


def test_a_task_opens_the_segments_of_its_range_and_no_others(log_dir: Path, opened: list[int]) -> None:
    scan = Load(log_dir, maxPartitionBytes=SEGMENT_BYTES, endingOffsets='{"t":{"0":60}}').scan()
    for split, task in zip(scan.splits, scan.tasks(), strict=True):
        opened.clear()
        assert sum(batch.num_rows for batch in task) == split.range.size
        assert set(opened) - {80} == {split.range.start}


def test_a_pushed_partition_opens_no_segment_of_the_others(log_dir: Path, opened: list[int]) -> None:
    append(log_dir, "t", 1, numbers(0, 20), segment_bytes=SEGMENT_BYTES)
    assert [split.range.partition for split in planned(log_dir, EqualTo(("partition",), 1))] == [1]
    assert set(opened) <= {0, 80}  # the last segment of t-0, and t-1's only one


def test_an_impossible_filter_makes_no_task(log_dir: Path) -> None:
    assert planned(log_dir, GreaterThan(OFFSET, 50), LessThan(OFFSET, 50)) == []
    assert Load(log_dir, pushdown=True).scan(EqualTo(("topic",), "none")).read().num_rows == 0


def test_closed_segments_older_than_a_pushed_timestamp_are_left_out(log_dir: Path) -> None:
    at = EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + 65)
    splits = planned(log_dir, GreaterThanOrEqual(TIMESTAMP, at))
    assert [(s.range.start, s.range.end, s.range.end_is_latest) for s in splits] == [(60, 100, True)]


def test_the_time_index_moves_the_start_to_the_batch_after_its_entry(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))  # record n has FIRST_TIMESTAMP + n, ten to a batch
    for ms in (69, 70, 71):
        wanted = GreaterThanOrEqual(TIMESTAMP, EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + ms))
        scan = Load(tmp_path, pushdown=True).scan(wanted)
        assert edges(scan.splits) == [(60 if ms == 69 else 70, 100)]
        assert scan.read()["offset"].to_pylist() == [*range(ms, 100)]


def test_closed_segments_behind_the_last_wanted_timestamp_are_left_out(tmp_path: Path, opened: list[int]) -> None:
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


def test_a_segment_deleted_after_the_listing_is_left_to_the_task(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PartitionLog.open_segment

    def gone(self: PartitionLog, index: int):
        if self.segments[index].base_offset == 0:
            raise FileNotFoundError(0)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", gone)
    assert edges(planned(log_dir)) == [(0, 100)]


# Late-bound sides


def late(splits: Sequence[Split]) -> list[tuple[bool, bool]]:
    return [(split.range.start_is_earliest, split.range.end_is_latest) for split in splits]


def test_of_many_tasks_the_first_keeps_the_late_start_and_the_last_the_late_end(log_dir: Path) -> None:
    splits = planned(log_dir, maxPartitionBytes=SEGMENT_BYTES)
    assert late(splits) == [(True, False), *[(False, False)] * 3, (False, True)]
    assert all(split.range.from_earliest for split in splits)


def test_explicit_offsets_are_not_late_bound(log_dir: Path) -> None:
    splits = planned(log_dir, startingOffsets='{"t":{"0":0}}', endingOffsets='{"t":{"0":100}}')
    assert late(splits) == [(False, False)]
    splits = planned(log_dir, startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":-1}}')
    assert late(splits) == [(True, True)]


def test_an_empty_partition_has_a_task_for_what_may_come(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, [])
    splits = planned(tmp_path)
    assert (edges(splits), late(splits)) == ([(0, 0)], [(True, True)])


def test_a_pushed_end_within_the_log_is_not_late_bound_and_one_beyond_it_is(log_dir: Path) -> None:
    assert late(planned(log_dir, LessThan(OFFSET, 50))) == [(True, False)]
    assert late(planned(log_dir, LessThan(OFFSET, 100))) == [(True, False)]
    assert late(planned(log_dir, LessThan(OFFSET, 101))) == [(True, True)]


def test_a_start_that_a_filter_moved_is_not_late_bound(log_dir: Path) -> None:
    splits = planned(log_dir, GreaterThanOrEqual(OFFSET, 30))
    assert (edges(splits), late(splits)) == ([(30, 100)], [(False, True)])
    assert splits[0].range.from_earliest  # retention may pass it by


# minPartitions and maxRecordsPerPartition


def test_min_partitions_cuts_further(log_dir: Path) -> None:
    assert len(planned(log_dir, minPartitions=7)) >= 7
    assert len(planned(log_dir, minPartitions=3, maxPartitionBytes=SEGMENT_BYTES)) == 5


def test_max_records_per_partition_bounds_every_task(log_dir: Path) -> None:
    splits = planned(log_dir, maxRecordsPerPartition=15, maxPartitionBytes=SEGMENT_BYTES)
    assert max(split.range.size for split in splits) <= 15
    assert len(splits) == 10


# The union of the tasks


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
def test_the_tasks_cover_the_range_without_overlap(two_partitions: Path, options: dict[str, object]) -> None:
    texts = {"path": str(two_partitions), **{name: str(value) for name, value in options.items()}}
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
def test_a_pushed_list_of_offsets_narrows_the_tasks_and_loses_none(
    two_partitions: Path, wanted: set[int], size: int
) -> None:
    load = Load(two_partitions, assign='{"t":[0]}', pushdown=True, maxPartitionBytes=size)
    scan = load.scan(In(OFFSET, tuple(sorted(wanted))))
    assert scan.residual == []
    assert scan.read()["offset"].to_pylist() == sorted(wanted & set(range(RECORDS)))
    held = [split.range for split in scan.splits if split.range.size]
    assert all(r.start >= min(wanted) and r.end <= max(wanted) + 1 for r in held)


def test_a_partition_that_is_gone_has_no_task(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    append(tmp_path, "u", 0, numbers(0, 3))
    load = Load(tmp_path)
    delete_partition(tmp_path, "u", 0)
    assert [split.range.topic for split in load.scan().splits] == ["t"]
