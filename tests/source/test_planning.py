"""From segments to tasks: what shares one, where large segments are cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.source.planning import pack_segments
from kafkalog_spark.source.segment_facts import Cut, SegmentFacts
from tests.source.helpers.made_logs import append, numbers, segment_offsets
from tests.source.helpers.planned import RECORDS, SEGMENT_BYTES, edges, planned


def batch_offsets(path: Path) -> list[int]:
    """First offsets of the batches of t-0, from the files."""
    log = LogDirs.open(path).partition("t", 0)
    found = []
    for index in range(len(log.segments)):
        with log.open_segment(index) as file:
            found += [header.base_offset for header in file.headers()]
    return found


def test_segments_too_large_to_share_a_task_get_one_each(log_dir: Path) -> None:
    assert edges(planned(log_dir, maxPartitionBytes=SEGMENT_BYTES)) == [
        (0, 20),
        (20, 40),
        (40, 60),
        (60, 80),
        (80, 100),
    ]


def test_adjacent_small_segments_share_a_task(log_dir: Path) -> None:
    assert edges(planned(log_dir)) == [(0, 100)]
    assert edges(planned(log_dir, maxPartitionBytes=1000)) == [(0, 60), (60, 100)]


@pytest.mark.local_only("messages and plans name local paths")
def test_split_belongs_to_one_partition(log_dir: Path) -> None:
    append(log_dir, "t", 1, numbers(0, 5))
    append(log_dir, "u", 0, numbers(0, 5))
    splits = planned(log_dir)
    assert [(*split.range.topic_partition, split.range.end) for split in splits] == [
        ("t", 0, 100),
        ("t", 1, 5),
        ("u", 0, 5),
    ]
    assert [split.location.directory for split in splits] == [str(log_dir / name) for name in ("t-0", "t-1", "u-0")]


@pytest.mark.local_only("cuts are unproven where each look is a request")
def test_large_segments_are_cut_at_batch_boundaries(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    cuts = [start for start, _ in edges(planned(tmp_path, maxPartitionBytes=400))]
    assert len(cuts) > 3
    assert cuts == sorted(set(cuts) & set(batch_offsets(tmp_path)))


@pytest.mark.local_only("cuts are unproven where each look is a request")
def test_cut_carries_the_position_of_its_batch(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    first, *others = planned(tmp_path, maxPartitionBytes=400)
    assert first.hint is None
    log = LogDirs.open(tmp_path).partition("t", 0)
    with log.open_segment(0) as file:
        positions = {header.base_offset: header.position for header in file.headers()}
    assert [split.hint for split in others] == [(0, positions[split.range.start]) for split in others]
    assert all(second.hint[1] - one.hint[1] >= 400 for one, second in pairwise(others))  # type: ignore[index]


def test_segment_after_a_cut_segment_begins_a_new_task(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    append(tmp_path, "t", 0, numbers(0, 10), roll_first=True)
    assert (RECORDS, RECORDS + 10) in edges(planned(tmp_path, maxPartitionBytes=400))


def test_large_segment_is_cut_only_within_the_range(tmp_path: Path) -> None:
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


@pytest.mark.local_only("cuts are unproven where each look is a request")
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
def test_segment_whose_index_proves_no_boundary_is_not_cut(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    append(tmp_path, "t", 0, numbers(0, RECORDS))
    spoil(tmp_path, change)
    assert edges(planned(tmp_path, maxPartitionBytes=200)) == [(0, RECORDS)]


@pytest.mark.local_only("cuts are unproven where each look is a request")
def test_batch_with_a_wrong_crc_is_not_used_as_a_boundary(tmp_path: Path) -> None:
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


@pytest.mark.local_only("cuts are unproven where each look is a request")
def test_message_sets_are_not_cut(golden_legacy: Path) -> None:
    # of a wrapper message the header tells the last offset only
    found = edges(planned(golden_legacy, subscribe="v1-gzip", maxPartitionBytes=1))
    assert [start for start, _ in found] == segment_offsets(golden_legacy, "v1-gzip", 0)


def test_packing_fills_a_task_up_to_the_size() -> None:
    segments = [SegmentFacts(i * 10, i * 10 + 10, size) for i, size in enumerate([4, 4, 4, 11, 1, 9, 1])]
    assert [cut.offset for cut in pack_segments(segments, 10)] == [20, 30, 40, 60]


def test_packing_keeps_the_boundaries_inside_a_segment() -> None:
    inner = (Cut(13, 10, 100), Cut(16, 10, 200))
    segments = [SegmentFacts(0, 10, 5), SegmentFacts(10, 20, 30, inner), SegmentFacts(20, 30, 1)]
    assert list(pack_segments(segments, 10)) == [Cut(10, 10, 0), *inner, Cut(20, 20, 0)]
