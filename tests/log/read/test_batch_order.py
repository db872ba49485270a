"""Base offsets lie outside the CRC: when two batches contradict each other, the one that was moved is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read import segment_scan
from kafkalog_spark.log.read.batch_order import is_follower_wrong, ordered_headers
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import OpenHints
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.store.local_store import LOCAL
from tests.log.helpers.batch_builder import batch
from tests.log.helpers.damaged_log import check_place, log_path, open_log, patched, read_all, records, write_segments
from tests.log.helpers.rows import plain_rows

PARTS = [batch(at, records(at)) for at in range(0, 50, 5)]
SIZE = len(PARTS[1])


def log_with(root: Path, moved: dict[int, int]) -> Path:
    """The log of PARTS, in which those batches have another base offset."""
    parts = [patched(part, 0, struct.pack(">q", moved[at])) if at in moved else part for at, part in enumerate(PARTS)]
    return write_segments(root, {0: b"".join(parts)})


def position_of(number: int) -> int:
    return sum(map(len, PARTS[:number]))


@pytest.mark.parametrize(
    ("previous", "base", "last", "follower", "behind", "expected"),
    [
        (4, 5, 9, 7, None, True),  # the first one begins where it must
        (4, 5, 9, 3, 15, True),
        (4, 2**32 + 5, 2**32 + 9, 10, None, False),  # a gap before it, and the second would do without it
        (4, 2**32 + 5, 2**32 + 9, 10, 15, False),
        (4, 8, 12, 6, 13, True),  # compacted: a gap before it, and the third one agrees with it
        (4, 8, 12, 6, 9, False),
        (4, 8, 12, 3, None, True),  # the second one fits nowhere
    ],
)
def test_batch_that_several_others_contradict_is_reported(
    previous: int, base: int, last: int, follower: int, behind: int | None, expected: bool
) -> None:
    assert is_follower_wrong(previous, base, last, follower, behind) is expected


@pytest.mark.parametrize("number", [1, 4, 8])
@pytest.mark.parametrize("flip", [1 << 32, 1 << 40, 1 << 62, 8])
def test_base_offset_flipped_upward_is_reported_by_log_end_and_scan(flip: int, number: int, tmp_path: Path) -> None:
    moved = 5 * number + flip
    directory = log_with(tmp_path, {number: moved})
    with pytest.raises(CorruptBatch, match=f"do not fit between {5 * number - 1} and the next batch") as raised:
        read_all(directory)
    check_place(raised.value, directory, position_of(number), moved)
    log = open_log(directory)
    log.__dict__["log_end"] = LogEnd(50, 0)  # as found through an index entry behind the damage
    for start, end in ((0, 50), (0, 5 * number + 3), (5 * number, 5 * number + 5)):
        with pytest.raises(CorruptBatch, match="do not fit between") as raised:
            list(scan_partition(log, start, end))
        check_place(raised.value, directory, position_of(number), moved)


@pytest.mark.parametrize("number", [1, 4, 8])
def test_base_offset_flipped_downward_is_reported(number: int, tmp_path: Path) -> None:
    directory = log_with(tmp_path, {number: 5 * number - 3})
    with pytest.raises(CorruptBatch, match=f"do not follow {5 * number - 1}") as raised:
        read_all(directory)
    check_place(raised.value, directory, position_of(number), 5 * number - 3)


def test_batch_that_contradicts_the_next_segment_is_reported(tmp_path: Path) -> None:
    last = patched(PARTS[9], 0, struct.pack(">q", 45 + 64))
    directory = write_segments(tmp_path, {0: b"".join(PARTS[:9]) + last, 50: batch(50, records(50))})
    with pytest.raises(CorruptBatch, match="or reach into the next segment at 50") as raised:
        read_all(directory)
    check_place(raised.value, directory, position_of(9), 45 + 64)


def dropped(directory: Path, end: int | None = None) -> tuple[list[int], list[tuple[int | None, int | None]]]:
    log = open_log(directory)
    log.hints = OpenHints(pass_over_damage=True)
    statistics = ScanStatistics()
    request = ScanRequest(drop_malformed=True)
    rows = plain_rows(scan_partition(log, 0, end or log.log_end_offset, request, statistics=statistics))
    return [row["offset"] for row in rows], [(error.position, error.offset) for error in statistics.dropped]


@pytest.mark.parametrize("window", [None, SIZE * 2 + 50, SIZE * 2, SIZE + 61])
@pytest.mark.parametrize("moved", [20 + (1 << 32), 20 - 3, 20 + 8, 0])
def test_only_the_batch_with_the_wrong_base_offset_is_dropped(
    moved: int, window: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it and the one that tells on it are seen at once or not."""
    if window is not None:
        monkeypatch.setattr(segment_scan, "WINDOW", window)
    directory = log_with(tmp_path, {4: moved})
    expected = [at for at in range(50) if not 20 <= at < 25]
    assert dropped(directory) == (expected, [(position_of(4), moved)])
    assert dropped(directory, 32) == ([at for at in expected if at < 32], [(position_of(4), moved)])


def test_wrong_base_offset_after_a_range_does_not_affect_it(tmp_path: Path) -> None:
    log = open_log(log_with(tmp_path, {4: 2}))
    log.__dict__["log_end"] = LogEnd(50, 0)
    assert [row["offset"] for row in plain_rows(scan_partition(log, 0, 20))] == list(range(20))


@pytest.mark.parametrize("tail", [b"", PARTS[5][:40], bytes(100), b"\xff" * 100, PARTS[2][:-1] + b"!"])
def test_ordered_headers_end_at_a_torn_tail(tail: bytes, tmp_path: Path) -> None:
    path = log_path(write_segments(tmp_path, {0: b"".join(PARTS[:5]) + tail}))
    found: list[int] = []
    with SegmentFile.open(LOCAL, str(path.parent), SegmentFiles(0, path.name)) as file:
        try:
            for header in ordered_headers(file, 0, 0):
                found.append(header.base_offset)
        except KafkalogError as error:
            assert error.position == position_of(5)  # noqa: PT017
    assert found == [0, 5, 10, 15, 20]
