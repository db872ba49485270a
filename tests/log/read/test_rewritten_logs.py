"""Logs whose segments are merged by the cleaner, or truncated by a recovering broker, while somebody reads them: what
looks like damage with the listing of before is none with the listing of now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch, DataLoss, KafkalogError
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, OpenHints
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.log.helpers.batch_builder import ABORT, COMMIT, TRANSACTIONAL, V2Record, batch, control
from tests.log.helpers.damaged_log import TIME, log_path, open_log, write_segments
from tests.log.helpers.rows import plain_rows

SEGMENTS = (0, 100, 200, 300)
END = 400


def records(first: int, count: int, size: int = 10) -> list[V2Record]:
    return [V2Record(at, TIME + at, None, b"v" * size) for at in range(first, first + count)]


def batches(first: int, end: int, step: int = 5, size: int = 10) -> bytes:
    return b"".join(batch(at, records(at, step, size)) for at in range(first, end, step))


def four_segments(tmp_path: Path) -> Path:
    return write_segments(tmp_path, {base: batches(base, base + 100) for base in SEGMENTS})


def merge(directory: Path) -> None:
    """The cleaner groups small segments: those of 100 and 200 become one, in the place of the first."""
    swap = directory / "merged.swap"
    swap.write_bytes(batches(100, 300))
    for base in (100, 200):
        path = log_path(directory, base)
        path.rename(path.with_suffix(".log.deleted"))
    swap.rename(log_path(directory, 100))


def offsets(found: Any) -> list[int]:
    return [row["offset"] for row in plain_rows(found)]


@pytest.mark.parametrize("drop", [False, True])
def test_segments_merged_during_a_read_lose_and_duplicate_no_row(drop: bool, tmp_path: Path) -> None:
    directory = four_segments(tmp_path)
    log = open_log(directory)
    log.hints = OpenHints(pass_over_damage=drop)
    statistics = ScanStatistics()
    request = ScanRequest(first_batch_rows=10, drop_malformed=drop)
    found = scan_partition(log, 0, log.log_end_offset, request, statistics=statistics)
    first = next(found)
    merge(directory)
    assert offsets([first, *found]) == list(range(END))
    assert statistics.dropped == []


@pytest.mark.parametrize(("start", "end"), [(100, 200), (150, 200), (180, 220), (200, 300), (0, 400), (195, 197)])
def test_range_planned_before_a_merge_is_read_after_it(start: int, end: int, tmp_path: Path) -> None:
    directory = four_segments(tmp_path)
    log = open_log(directory)
    assert log.log_end_offset == END
    merge(directory)
    assert offsets(scan_partition(log, start, end)) == list(range(start, end))


def test_timestamp_lookup_works_after_a_merge(tmp_path: Path) -> None:
    directory = four_segments(tmp_path)
    for wanted in (150, 199, 200, 201, 350):
        log = open_log(four_segments(tmp_path))
        assert log.log_end_offset == END
        merge(directory)
        assert offset_for_timestamp(log, TIME + wanted) == wanted


def test_timestamp_lookup_works_in_a_log_truncated_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovering broker cuts the first segment right after it was opened, and removes the one behind it."""
    directory = write_segments(tmp_path, {0: batches(0, 100), 100: batches(100, 110)})
    log = open_log(directory)
    assert log.log_end_offset == 110
    real = SegmentFile.good_headers

    def cut(file: SegmentFile, position: int = 0) -> Any:
        if log_path(directory, 100).exists():
            log_path(directory, 100).unlink()
            os.truncate(file.path, len(batches(0, 50)) + 30)
            os.truncate(file.path, len(batches(0, 50)))
        return real(file, position)

    monkeypatch.setattr(SegmentFile, "good_headers", cut)
    assert offset_for_timestamp(log, TIME + 20) == 20
    assert offset_for_timestamp(log, TIME + 70) is None
    assert (log.log_start_offset, log.log_end_offset) == (0, 50)


@pytest.mark.parametrize("drop", [False, True])
def test_transactions_are_tracked_across_a_merge(drop: bool, tmp_path: Path) -> None:
    """Aborted with a marker that lies in what was the second segment; another transaction stays open."""

    def transaction(first: int, producer: int) -> bytes:
        return batch(
            first,
            records(first, 5),
            attributes=TRANSACTIONAL,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )

    one = transaction(0, 7) + transaction(5, 8)
    two = control(10, ABORT, TIME, 7) + control(11, COMMIT, TIME, 8) + transaction(12, 9) + batches(17, 22)
    directory = write_segments(tmp_path, {0: one, 10: two, 22: batches(22, 27)})
    log = open_log(directory)
    log.hints = OpenHints(pass_over_damage=drop)
    assert log.log_end_offset == 27
    log_path(directory, 10).unlink()
    log_path(directory, 0).unlink()
    log_path(directory, 0).write_bytes(one + two)
    assert last_stable_offset(log) == 12
    log = open_log(write_segments(tmp_path, {0: one, 10: two}))
    log.hints = OpenHints(pass_over_damage=drop)
    log_path(directory, 10).unlink()
    log_path(directory, 0).write_bytes(one + two)
    request = ScanRequest(read_committed=True, drop_malformed=drop)
    assert offsets(scan_partition(log, 0, 12, request)) == list(range(5, 10))


def test_damage_in_a_log_that_always_changes_is_reported_after_some_listings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = batches(0, 5) + batches(5, 10)[:-1] + b"!" + batches(10, 15)
    directory = write_segments(tmp_path, {0: bad, 15: batches(15, 20)})
    listings = 0

    def changed(file: SegmentFile) -> bool:
        nonlocal listings
        listings += 1
        return True

    monkeypatch.setattr(SegmentFile, "has_changed", changed)
    log = open_log(directory)
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        list(scan_partition(log, 0, 20))
    assert 1 < listings <= MAX_LISTINGS


LARGE = 30_000  # bytes a record: one window does not hold the segment


def large_segment(tmp_path: Path) -> tuple[Path, int]:
    """The log of 300 records in 30 batches, and the position of the one at offset 200."""
    head = batches(0, 200, 10, LARGE)
    return write_segments(tmp_path, {0: head + batches(200, 300, 10, LARGE)}), len(head)


@pytest.mark.parametrize("told", [False, True])
def test_log_truncated_while_it_is_read_is_data_loss(told: bool, tmp_path: Path) -> None:
    directory, cut = large_segment(tmp_path)
    log = open_log(directory)
    lost: list[KafkalogError] = []
    found = scan_partition(
        log, 0, log.log_end_offset, ScanRequest(first_batch_rows=1), on_loss=lost.append if told else None
    )
    first = next(found)
    os.truncate(log_path(directory), cut)
    if not told:
        with pytest.raises(DataLoss, match=r"records in \[200, 300\) are gone") as raised:
            list(found)
        assert (raised.value.topic_partition, raised.value.offset) == ("orders-0", 200)
    else:
        assert offsets([first, *found]) == list(range(200))
        assert [(type(error), error.offset) for error in lost] == [(DataLoss, 200)]


def test_log_truncated_and_rewritten_during_a_read_continues_with_the_new_records(tmp_path: Path) -> None:
    """A follower that finds itself ahead of a new leader truncates, and gets other records in other batches."""
    directory, _ = large_segment(tmp_path)
    log = open_log(directory)
    found = scan_partition(log, 0, log.log_end_offset, ScanRequest(first_batch_rows=1))
    first = next(found)
    os.truncate(log_path(directory), len(batches(0, 30, 10, LARGE)))
    with log_path(directory).open("ab") as file:
        file.write(b"".join(batch(at, records(at, 7, 31_000)) for at in range(30, 310, 7)))
    got = plain_rows([first, *found])
    assert [row["offset"] for row in got] == list(range(300))
    sizes = [len(row["value"]) for row in got]
    assert sizes == sorted(sizes), "what had been read is given, then what is there now"
    assert set(sizes) == {LARGE, 31_000}


def test_segment_rewritten_under_its_name_continues_with_the_new_records(tmp_path: Path) -> None:
    """Restored from a backup, say: the name leads to another file, and the open one is cut."""
    directory, cut = large_segment(tmp_path)
    log = open_log(directory)
    lost: list[KafkalogError] = []
    found = scan_partition(log, 0, 300, ScanRequest(first_batch_rows=1), on_loss=lost.append)
    first = next(found)
    data = log_path(directory).read_bytes()
    other = directory / "restored"
    other.write_bytes(data)
    os.truncate(log_path(directory), cut)
    other.rename(log_path(directory))
    assert offsets([first, *found]) == list(range(300))
    assert lost == []
