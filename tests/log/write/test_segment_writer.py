from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptBatch, SegmentFull
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.offset_index import check_offset_index, parse_offset_index
from kafkalog_spark.format.time_index import check_time_index, parse_time_index
from kafkalog_spark.log.write import segment_writer
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, split_batches
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.golden_data import KAFKA_4_3, GoldenLog, golden_logs
from tests.log.helpers.legacy_builder import message
from tests.log.helpers.plain_decoder import decode_log

# Made with index.interval.bytes=512; the others have Kafka's default. Their index files tell: with 4096 they would have
# fewer entries, and these values reproduce all of them.
DENSE = ("codec-", "java-", "out-of-order", "transactions", "compacted")
INDEX_SIZE_OF_CRASHED = 1 << 20  # segment.index.bytes of the broker that wrote the golden logs

FILES = (".log", ".index", ".timeindex")


def interval(log: GoldenLog) -> int:
    return 512 if log.topic.startswith(DENSE) else 4096


def batch(offset: int, size: int = 100, *, count: int = 1, timestamp: int = 1000) -> EncodedBatch:
    """Stands for a batch: the writer looks at the header, not into the bytes. (A v1 message, so that recovery can.)"""
    data = message(1, offset + count - 1, None, bytes(size - 34), timestamp)
    assert len(data) == size
    return EncodedBatch(data, parse_header(data, 0, 0)._replace(base_offset=offset, record_count=count))


def contents(directory: Path, base_offset: int = 0) -> tuple[bytes, ...]:
    return tuple((directory / f"{base_offset:020d}{suffix}").read_bytes() for suffix in FILES)


def offset_entries(directory: Path, base_offset: int = 0) -> list[tuple[int, int]]:
    index = parse_offset_index(contents(directory, base_offset)[1], base_offset)
    return list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))


def time_entries(directory: Path, base_offset: int = 0) -> list[tuple[int, int]]:
    index = parse_time_index(contents(directory, base_offset)[2], base_offset)
    return list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True))


# ---- what Kafka wrote


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_replayed_golden_log_equals_kafkas_files(log: GoldenLog, tmp_path: Path) -> None:
    """Log, offset index and time index of every segment, compacted and transactional ones too, without exception."""
    for path in log.segments():
        with SegmentWriter.create(tmp_path, int(path.stem), index_interval_bytes=interval(log)) as writer:
            for encoded in split_batches(path.read_bytes()):
                writer.append(encoded)
        for suffix in FILES:
            written = (tmp_path / path.name).with_suffix(suffix).read_bytes()
            assert written == path.with_suffix(suffix).read_bytes(), f"{path.stem}{suffix}"


@pytest.mark.parametrize("log", golden_logs(crashed=True), ids=str)
def test_open_segment_has_preallocated_files_as_in_kafka(log: GoldenLog, tmp_path: Path) -> None:
    path = log.segments()[-1]
    writer = SegmentWriter.create(
        tmp_path, int(path.stem), index_interval_bytes=interval(log), max_index_size=INDEX_SIZE_OF_CRASHED
    )
    for encoded in split_batches(path.read_bytes()):
        writer.append(encoded)
    writer.abandon()
    for suffix in FILES:
        assert (tmp_path / path.name).with_suffix(suffix).read_bytes() == path.with_suffix(suffix).read_bytes()


# ---- index entries


def test_first_batch_of_a_segment_gets_no_index_entry(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=0) as writer:
        for offset in range(3):
            assert writer.append(batch(offset)) == offset * 100
    assert offset_entries(tmp_path) == [(1, 100), (2, 200)]


def test_index_entry_needs_more_than_index_interval_bytes_since_the_last(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=200) as writer:
        for offset in range(8):
            writer.append(batch(offset))
    # 200 bytes before batch 2 are not more than 200; the batch with an entry counts for the next one
    assert offset_entries(tmp_path) == [(3, 300), (6, 600)]


def test_index_entry_has_last_offset_and_start_position_of_its_batch(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 50, index_interval_bytes=0) as writer:
        writer.append(batch(50, count=10))
        writer.append(batch(60, count=7))
    assert offset_entries(tmp_path, 50) == [(66, 100)]


def test_time_index_entry_has_the_largest_timestamp_and_last_offset_of_its_batch(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=0) as writer:
        for offset, timestamp in ((0, 500), (10, 900), (20, 700), (30, 900), (40, 901)):
            writer.append(batch(offset, count=10, timestamp=timestamp))
    assert offset_entries(tmp_path) == [(19, 100), (29, 200), (39, 300), (49, 400)]
    assert time_entries(tmp_path) == [(900, 19), (901, 49)]


def test_largest_timestamp_gets_its_entry_when_the_segment_is_closed(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0) as writer:
        writer.append(batch(0, timestamp=500))
        writer.append(batch(1, timestamp=400))
        assert time_entries(tmp_path) == []
    assert time_entries(tmp_path) == [(500, 0)]
    assert contents(tmp_path)[1] == b""


def test_last_time_entry_is_written_even_into_a_full_index(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=0, max_index_size=24) as writer:
        writer.append(batch(0, timestamp=1))
        assert not writer.are_indexes_full
        writer.append(batch(1, timestamp=2))
        assert writer.are_indexes_full  # one of two slots is kept
        writer.max_timestamp, writer.offset_of_max_timestamp = 3, 1
    assert time_entries(tmp_path) == [(2, 1), (3, 1)]


def test_batches_without_timestamps_leave_the_time_index_empty(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=0) as writer:
        writer.append(batch(0, timestamp=-1))
        writer.append(batch(1, timestamp=-1))
    assert time_entries(tmp_path) == []
    assert offset_entries(tmp_path) == [(1, 100)]


@given(
    st.lists(
        st.tuples(st.integers(50, 3000), st.integers(1, 9), st.just(-1) | st.integers(1, 50), st.integers(0, 3)),
        max_size=40,
    ),
    st.sampled_from([0, 100, 4096]),
)
def test_index_entries_point_at_batches_and_bound_earlier_timestamps(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, int]], index_interval: int
) -> None:
    directory = tmp_path_factory.mktemp("segment")
    offset, batches = 7, []
    for size, count, timestamp, gap in rows:
        batches.append(batch(offset + gap, size, count=count, timestamp=timestamp))
        offset += gap + count
    with SegmentWriter.create(directory, 7, index_interval_bytes=index_interval) as writer:
        positions = {writer.append(b): b for b in batches}
    log, offset_index, time_index = contents(directory, 7)
    assert log == b"".join(b.data for b in batches)
    check_offset_index(offset_index, 7)
    check_time_index(time_index, 7)
    for entry_offset, position in offset_entries(directory, 7):
        assert positions[position].header.last_offset == entry_offset
    for timestamp, entry_offset in time_entries(directory, 7):
        assert max(b.header.max_timestamp for b in batches if b.header.last_offset <= entry_offset) == timestamp
    if batches and max(b.header.max_timestamp for b in batches) >= 0:
        assert time_entries(directory, 7)[-1][0] == max(b.header.max_timestamp for b in batches)


# ---- opening again


def test_cleanly_closed_segment_continues_at_its_end(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 10, index_interval_bytes=150) as writer:
        for offset in range(10, 20):
            writer.append(batch(offset, timestamp=offset))
    with SegmentWriter.open_existing(tmp_path, 10, index_interval_bytes=150) as writer:
        assert (writer.next_offset, writer.size, writer.first_timestamp) == (20, 1000, 10)
        assert (writer.max_timestamp, writer.offset_of_max_timestamp) == (19, 19)
        # bytes since the last entry are counted from 0 again, as after a restart of Kafka
        for offset in range(20, 23):
            writer.append(batch(offset, timestamp=5))
    assert [b.base_offset for b in decode_log(tmp_path / f"{10:020d}.log")] == list(range(10, 23))
    assert offset_entries(tmp_path, 10)[-2:] == [(18, 800), (22, 1200)]
    assert time_entries(tmp_path, 10)[-1] == (19, 19)


def test_empty_segment_is_reopened(tmp_path: Path) -> None:
    SegmentWriter.create(tmp_path, 10).close()
    with SegmentWriter.open_existing(tmp_path, 10) as writer:
        assert (writer.next_offset, writer.size, writer.first_timestamp, writer.max_timestamp) == (10, 0, None, -1)


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_every_golden_segment_can_be_opened_and_closed_without_a_change(log: GoldenLog, tmp_path: Path) -> None:
    for path in log.segments():
        before = []
        for suffix in FILES:
            (tmp_path / path.name).with_suffix(suffix).write_bytes(path.with_suffix(suffix).read_bytes())
            before.append(path.with_suffix(suffix).read_bytes())
        with SegmentWriter.open_existing(tmp_path, int(path.stem)) as writer:
            batches = log.batches(path)
            assert writer.next_offset == (batches[-1].last_offset + 1 if batches else int(path.stem))
        assert contents(tmp_path, int(path.stem)) == tuple(before)


def test_torn_tail_is_refused_on_opening(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0, index_interval_bytes=0) as writer:
        for offset in range(5):
            writer.append(batch(offset))
    path = tmp_path / f"{0:020d}.log"
    whole = path.read_bytes()
    for left in range(1, 100):
        path.write_bytes(whole[: 400 + left])
        with pytest.raises(CorruptBatch) as caught:
            SegmentWriter.open_existing(tmp_path, 0)
        assert (caught.value.position, caught.value.path) == (400, str(path))
        assert "recover" in str(caught.value)


# ---- what is refused, and what an error leaves


def test_create_refuses_an_existing_segment(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0) as writer:
        writer.append(batch(0))
    before = contents(tmp_path)
    with pytest.raises(FileExistsError):
        SegmentWriter.create(tmp_path, 0)
    assert contents(tmp_path) == before


def test_failed_create_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_writer, "TimeIndexWriter", full)
    with pytest.raises(OSError, match="No space left"):
        SegmentWriter.create(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [batch(1), batch(0), EncodedBatch(b"", batch(4).header._replace(base_offset=5))],
    ids=["same", "before", "turned"],
)
def test_offsets_that_do_not_rise_are_refused(tmp_path: Path, wrong: EncodedBatch) -> None:
    with SegmentWriter.create(tmp_path, 0) as writer:
        writer.append(batch(0, count=2))
        with pytest.raises(CorruptBatch, match="cannot follow offset 1"):
            writer.append(wrong)
        assert (writer.size, writer.next_offset) == (100, 2)


def test_offsets_that_an_index_cannot_hold_are_refused(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 10) as writer:
        writer.append(batch(10 + 2**31 - 1))
        with pytest.raises(SegmentFull, match="roll the segment"):
            writer.append(batch(10 + 2**31))


def test_bytes_that_a_position_cannot_hold_are_refused(tmp_path: Path) -> None:
    with SegmentWriter.create(tmp_path, 0) as writer:
        writer.append(batch(0))
        writer.size = 2**31 - 100
        with pytest.raises(SegmentFull, match="do not fit"):
            writer.append(batch(1))
        writer.size = 100


def test_full_index_refuses_a_batch_that_needs_an_entry_and_changes_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, 0, index_interval_bytes=0, max_index_size=24)
    for offset in range(2):
        writer.append(batch(offset, timestamp=offset))
    before = contents(tmp_path)
    with pytest.raises(SegmentFull, match="the index is full"):
        writer.append(batch(2, timestamp=2))
    assert contents(tmp_path) == before
    assert (writer.next_offset, writer.size, writer.max_timestamp) == (2, 200, 1)
    writer.close()


@pytest.mark.parametrize("written", [0, 1, 60, 150])
def test_failed_write_leaves_the_log_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """The disk takes a part of the batch, then is full; appending works again when there is room."""
    writer = SegmentWriter.create(tmp_path, 0, index_interval_bytes=0)
    writer.append(batch(0))
    writer.append(batch(1))
    before = contents(tmp_path)
    pwrite = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if fd != writer._fd or position > 200:
            raise OSError(28, "No space left on device")
        return pwrite(fd, data[:written], position) if written else full(fd, data, 201)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        writer.append(batch(2, 160))
    monkeypatch.undo()
    assert contents(tmp_path) == before
    assert writer.append(batch(2)) == 200
    writer.close()
    assert [b.base_offset for b in decode_log(tmp_path / f"{0:020d}.log")] == [0, 1, 2]
    assert offset_entries(tmp_path) == [(1, 100), (2, 200)]


@pytest.mark.parametrize("index", ["offset_index", "time_index"])
def test_failed_index_write_removes_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    writer = SegmentWriter.create(tmp_path, 0, index_interval_bytes=0)
    writer.append(batch(0, timestamp=1))
    writer.append(batch(1, timestamp=2))
    before = contents(tmp_path)
    pwrite = os.pwrite
    failing = getattr(writer, index)._fd

    def full(fd: int, data: bytes, position: int) -> int:
        if fd == failing:  # when it is the time index, the entry of the other is there already
            raise OSError(28, "No space left on device")
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        writer.append(batch(2, timestamp=3))
    monkeypatch.undo()
    assert contents(tmp_path) == before
    assert (writer.next_offset, writer.size, writer.max_timestamp, writer.offset_of_max_timestamp) == (2, 200, 2, 1)
    writer.append(batch(2, timestamp=3))
    writer.append(batch(3, timestamp=4))
    writer.close()
    assert offset_entries(tmp_path) == [(1, 100), (2, 200), (3, 300)]
    assert time_entries(tmp_path) == [(2, 1), (3, 2), (4, 3)]


def test_second_close_is_a_no_op(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, 0)
    writer.append(batch(0))
    writer.flush()
    writer.close()
    writer.close()
    writer.abandon()
