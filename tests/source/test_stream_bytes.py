"""maxBytesPerTrigger: whole batches by their size on disk, at least one of each partition that has news."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.source.range_contents import bytes_of, end_of_bytes, holds_records
from tests.source.helpers.made_logs import MadeBatch, append, write_batches
from tests.source.helpers.stream_driver import Query


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Topic t: 200 records in batches of 10 of equal size on partition 0, in segments of 4; 10 records on 1."""
    values = [f"{i:05}" for i in range(200)]
    append(tmp_path, "t", 0, values, segment_bytes=700, timestamps=[1_700_000_000_000] * 200)
    append(tmp_path, "t", 1, [f"{i:05}" for i in range(900, 910)], timestamps=[1_700_000_000_000] * 10)
    return tmp_path


def batch_bytes(logs: Path) -> int:
    return (logs / "t-1" / f"{0:020d}.log").stat().st_size


def test_byte_limit_ends_match_the_batches_in_the_files(logs: Path) -> None:
    log = LogDirs.open(logs).partition("t", 0)
    size = batch_bytes(logs)
    assert len(log.segments) > 3
    for start in range(0, 200, 7):
        for end in range(start, 201, 13):
            batches = (end - 1) // 10 - start // 10 + 1 if end > start else 0
            # the batch that holds `end` is not counted, unless it is the one that holds `start`
            whole = end // 10 - start // 10 if end % 10 else batches
            assert bytes_of(log, start, end) == whole * size
    for start in (0, 3, 40, 77, 195):
        for budget in (1, size - 1, size, size + 1, 3 * size, 100 * size):
            expected = min((start // 10 + max(budget // size, 1)) * 10, 200)
            assert end_of_bytes(log, start, 200, budget) == expected
    assert end_of_bytes(log, 0, 15, 10 * size) == 15


def test_segments_wanted_as_a_whole_are_not_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, size, read, headers = LogDirs.open(logs).partition("t", 0), batch_bytes(logs), [], SegmentFile.headers

    def spy(file: SegmentFile, position: int = 0) -> Iterator[BatchHeader]:
        read.append(file.base_offset)
        return headers(file, position)

    monkeypatch.setattr(SegmentFile, "headers", spy)
    assert end_of_bytes(log, 0, 200, 10 * size) == 100
    assert read == [90]
    assert bytes_of(log, 0, 90) == 9 * size
    assert read == [90]


@pytest.mark.parametrize("damage", ["gone", "empty"])
def test_byte_limit_without_an_offset_index_gives_the_same_ends(logs: Path, damage: str) -> None:
    before = end_of_bytes(LogDirs.open(logs).partition("t", 0), 33, 200, 5 * batch_bytes(logs))
    for index in (logs / "t-0").glob("*.index"):
        if damage == "gone":
            index.unlink()
        else:
            index.write_bytes(b"")
    log = LogDirs.open(logs).partition("t", 0)
    assert end_of_bytes(log, 33, 200, 5 * batch_bytes(logs)) == before


def test_byte_limited_batches_read_everything_once(logs: Path) -> None:
    size = batch_bytes(logs)
    query = Query(logs, startingOffsets="earliest", maxBytesPerTrigger=5 * size, trigger_kind="availableNow")
    batches = query.trigger()
    assert sorted(chain.from_iterable(batches)) == [
        *(f"{i:05}" for i in range(200)),
        *(f"{i:05}" for i in range(900, 910)),
    ]
    assert max(map(len, batches)) <= (5 + 1) * 10
    assert len(batches[0]) == 50, "4 batches of the one and 1 of the other"


def test_byte_limit_below_one_batch_reads_one_batch_of_each_partition(logs: Path) -> None:
    query = Query(logs, startingOffsets="earliest", maxBytesPerTrigger=1)
    assert len(query.trigger()[0]) == 20
    assert query.end == {"t": {"0": 10, "1": 10}}
    assert len(query.trigger()[0]) == 10


def test_byte_limit_and_offset_limit_both_hold(logs: Path) -> None:
    query = Query(logs, startingOffsets="earliest", maxBytesPerTrigger=10**6, maxOffsetsPerTrigger=21)
    assert len(query.trigger()[0]) == 20 + 1
    query = Query(logs, startingOffsets="earliest", maxBytesPerTrigger=1, maxOffsetsPerTrigger=100)
    assert len(query.trigger()[0]) == 14, "the share of partition 1, 4 offsets, ends inside its only batch"


def test_trigger_once_ignores_max_bytes_per_trigger(logs: Path) -> None:
    query = Query(logs, startingOffsets="earliest", maxBytesPerTrigger=1, trigger_kind="once")
    assert [len(batch) for batch in query.trigger()] == [210]


def test_byte_limit_skips_gaps_left_by_compaction(tmp_path: Path) -> None:
    batch = MadeBatch(["x"], [1_700_000_000_000], gap=1000)
    write_batches(tmp_path, "t", 0, [batch] * 5)
    query = Query(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=1, trigger_kind="availableNow")
    assert query.trigger() == [["x"]] * 5


def test_byte_limit_leaves_damage_to_the_reading_task(logs: Path) -> None:
    path = sorted((logs / "t-0").glob("*.log"))[1]
    path.write_bytes(b"\x00" * path.stat().st_size)
    log = LogDirs.open(logs).partition("t", 0)
    assert bytes_of(log, 0, 200) > 0
    assert end_of_bytes(log, 45, 200, 1) > 45
    assert holds_records(log, 45, 200, read_committed=False)
