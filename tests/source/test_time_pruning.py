"""What pushed timestamps save by the time index; planning reads little for it, whatever the indexes are like."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.read.segment_file import SegmentFile
from tests.source.helpers.driver import Load, Scan
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append

SEGMENTS = 4
RECORDS = 500  # of a segment, a kilobyte each
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Topic t, one partition: record n has the timestamp FIRST_TIMESTAMP + n; four segments of half a megabyte."""
    for start in range(0, SEGMENTS * RECORDS, RECORDS):
        append(
            tmp_path,
            "t",
            0,
            [bytes(1000)] * RECORDS,
            timestamps=[FIRST_TIMESTAMP + n for n in range(start, start + RECORDS)],
            roll_first=True,
            index_interval_bytes=4096,
        )
    return tmp_path


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each segment that has been closed, in order."""
    seen: list[int] = []
    original = SegmentFile.close

    def spy(self: SegmentFile) -> None:
        seen.append(self.bytes_read)
        original(self)

    monkeypatch.setattr(SegmentFile, "close", spy)
    return seen


def since(path: Path, record: int, **options: object) -> Scan:
    wanted = EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + record)
    return Load(path, pushdown=True, columns="offset", **options).scan(GreaterThanOrEqual(("timestamp",), wanted))


def size_of(path: Path) -> int:
    return sum(log.stat().st_size for log in path.glob("*/*.log"))


def index_files(path: Path, pattern: str) -> list[Path]:
    found = sorted((path / "t-0").glob(pattern))
    assert len(found) % SEGMENTS == 0
    return found


def remove(path: Path, pattern: str) -> None:
    for index in index_files(path, pattern):
        index.unlink()


def fill(path: Path, pattern: str, byte: bytes) -> None:
    for index in index_files(path, pattern):
        index.write_bytes(byte * index.stat().st_size)


def shift_positions(path: Path) -> None:
    """Right offsets, positions one byte beside the batches."""
    for index in index_files(path, "*.index"):
        data = bytearray(index.read_bytes())
        for at in range(7, len(data), 8):
            data[at] ^= 1
        index.write_bytes(data)


UNHELPFUL: dict[str, Callable[[Path], None]] = {
    "no time index": lambda path: remove(path, "*.timeindex"),
    "no offset index": lambda path: remove(path, "*.index"),
    "no index": lambda path: remove(path, "*.*index"),
    "zeros": lambda path: fill(path, "*.*index", b"\0"),
    "ones": lambda path: fill(path, "*.*index", b"\xff"),
    "positions beside the batches": shift_positions,
}


@pytest.mark.local_only("planning asks less where each look is a request")
def test_planning_finds_the_batch_of_a_pushed_timestamp_by_its_indexes(log_dir: Path, bytes_read: list[int]) -> None:
    scan = since(log_dir, 1777)
    assert [split.range.start for split in scan.splits] == [1770]
    assert sum(bytes_read) < size_of(log_dir) // 6  # a few batches of ten kilobytes in each segment
    assert scan.read()["offset"].to_pylist() == [*range(1777, SEGMENTS * RECORDS)]


@pytest.mark.parametrize("change", UNHELPFUL.values(), ids=UNHELPFUL.keys())
def test_useless_indexes_bound_what_planning_reads(
    log_dir: Path, bytes_read: list[int], change: Callable[[Path], None]
) -> None:
    change(log_dir)
    Load(log_dir).scan()
    without_filter = sum(bytes_read)  # the search for the end of the log
    bytes_read.clear()
    scan = since(log_dir, 1777)
    assert sum(bytes_read) - without_filter <= size_of(log_dir) // 8
    assert scan.read()["offset"].to_pylist() == [*range(1777, SEGMENTS * RECORDS)]


@pytest.mark.local_only("planning asks less where each look is a request")
def test_damage_found_for_a_pushed_timestamp_is_left_to_the_task(tmp_path: Path) -> None:
    for start in (0, 10, 20):
        append(tmp_path, "t", 0, ["x"] * 10, timestamps=[FIRST_TIMESTAMP + start] * 10, batch=1, roll_first=True)
    for index in (tmp_path / "t-0").glob("*.timeindex"):
        index.unlink()
    log = tmp_path / "t-0" / f"{10:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    scan = since(tmp_path, 15)
    assert [(split.range.start, split.range.end) for split in scan.splits] == [(10, 30)]
    with pytest.raises(CorruptBatch, match=r"\(offset 19\)"):
        scan.read()
    assert since(tmp_path, 15, mode="DROPMALFORMED").read()["offset"].to_pylist() == [*range(20, 30)]


@pytest.mark.local_only("planning asks less where each look is a request")
def test_closed_segment_that_ends_inside_a_batch_is_left_to_the_task(tmp_path: Path) -> None:
    """The batch that is cut could be the latest one: leaving the segment out would hide the damage."""
    for start in (0, 10, 20):
        append(tmp_path, "t", 0, ["x"] * 10, timestamps=[FIRST_TIMESTAMP + start] * 10, batch=5, roll_first=True)
    for index in (tmp_path / "t-0").glob("*.timeindex"):
        index.unlink()
    log = tmp_path / "t-0" / f"{10:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    scan = since(tmp_path, 15)
    assert [(split.range.start, split.range.end) for split in scan.splits] == [(10, 30)]
    with pytest.raises(CorruptBatch, match=r"\(offset 15\)"):
        scan.read()
    assert since(tmp_path, 15, mode="DROPMALFORMED").read()["offset"].to_pylist() == [*range(20, 30)]
