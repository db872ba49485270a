"""The time index: reading what Kafka wrote, writing the same, and surviving everything else."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptIndex, SegmentFull
from kafkalog_spark.format.time_index import (
    ENTRY_SIZE,
    TimeIndex,
    TimeIndexWriter,
    check_time_index,
    load_time_index,
    parse_time_index,
)
from tests.log.helpers.damaged_bytes import damaged
from tests.log.helpers.golden_segments import CRASHED_SEGMENTS, GOLDEN_SEGMENTS, GoldenSegment

FIELDS = struct.Struct(">qi")


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(FIELDS.pack(*entry) for entry in entries)


def pairs(index: TimeIndex) -> list[tuple[int, int]]:
    return list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True))


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_golden_entries_have_the_largest_timestamp_up_to_their_offset(segment: GoldenSegment):
    index = load_time_index(segment.time_index, segment.base_offset)
    assert index.is_complete
    assert len(index) * ENTRY_SIZE == segment.time_index.stat().st_size, "every byte of the file is understood"
    for timestamp, offset in pairs(index):
        batch = next(batch for batch in segment.batches if batch.base_offset <= offset <= batch.last_offset)
        assert batch.timestamp == timestamp
        assert all(before.timestamp < timestamp for before in segment.batches if before.last_offset < offset)
    check_time_index(segment.time_index.read_bytes(), segment.base_offset)


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_last_entry_of_a_closed_segment_has_its_largest_timestamp(segment: GoldenSegment):
    last = load_time_index(segment.time_index, segment.base_offset).last
    timestamp, offset = segment.largest_timestamp()
    assert last == ((timestamp, offset) if timestamp >= 0 else None)


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_batches_up_to_the_floor_entry_are_older_than_the_timestamp(segment: GoldenSegment):
    index = load_time_index(segment.time_index, segment.base_offset)
    for timestamp in {batch.timestamp + step for batch in segment.batches for step in (-1, 0, 1)}:
        floor = index.floor_before(timestamp)
        if floor is not None:
            assert all(batch.timestamp < timestamp for batch in segment.batches if batch.last_offset <= floor.offset)


@pytest.mark.parametrize("segment", [s for s in GOLDEN_SEGMENTS if s.one_batch_an_append], ids=str)
def test_written_index_equals_kafkas(segment: GoldenSegment, tmp_path):
    with TimeIndexWriter(tmp_path / "index", segment.base_offset) as writer:
        for _batch, timestamp, offset in segment.indexed_batches():
            writer.maybe_append(timestamp, offset)
        writer.maybe_append(*segment.largest_timestamp(), skip_full_check=True)
        writer.trim()
    assert (tmp_path / "index").read_bytes() == segment.time_index.read_bytes()


@pytest.mark.parametrize("segment", CRASHED_SEGMENTS, ids=str)
def test_padding_of_a_crashed_index_is_not_an_entry(segment: GoldenSegment):
    index = load_time_index(segment.time_index, segment.base_offset)
    clean = load_time_index(segment.after_clean_restart.time_index, segment.base_offset)
    assert not index.is_complete
    # Closing the segment cleanly adds the entry of its largest timestamp.
    assert pairs(index) in (pairs(clean), pairs(clean)[:-1])


def test_floor_before_returns_the_last_strictly_earlier_entry():
    index = parse_time_index(packed((100, 1), (200, 2), (300, 3)), 50)
    assert index.floor_before(100) is None
    assert index.floor_before(101) == (100, 51)
    assert index.floor_before(200) == (100, 51)
    assert index.floor_before(201) == (200, 52)
    assert index.floor_before(2**62) == (300, 53)
    assert index.last == (300, 53)


def test_segment_of_one_batch_has_one_entry_that_may_point_at_the_base_offset():
    index = parse_time_index(packed((1700000000000, 0)), 50)
    assert pairs(index) == [(1700000000000, 50)]
    assert index.is_complete


def test_twelve_zero_bytes_are_padding_and_not_the_year_1970():
    index = parse_time_index(bytes(12), 50)
    assert index.last is None
    assert not index.is_complete


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (b"", 0),
        (packed((0, 3)), 1),
        (packed((10, 0), (20, 1)), 2),
        (packed((10, 5), (20, 5)), 2),
        (packed((10, 0), (20, 0)), 1),
        (packed((10, 5), (0, 0), (30, 9)), 1),
        (packed((10, 5), (10, 6)), 1),
        (packed((10, 5), (9, 6)), 1),
        (packed((10, 5), (11, 4)), 1),
        (packed((-1, 5)), 0),
        (packed((10, -5)), 0),
        (packed((10, 5), (20, 6))[:-1], 1),
        (packed((2**63 - 1, 2**31 - 1)), 1),
        (packed((1, 5), (-(2**63), 6)), 1),
        (packed((2**63 - 1, 5), (-(2**63), 6)), 1),
    ],
)
def test_parsing_stops_at_the_first_invalid_entry(data, good):
    index = parse_time_index(data, 7)
    assert pairs(index) == [(a, 7 + b) for a, b in FIELDS.iter_unpack(data[: good * ENTRY_SIZE])]
    assert index.is_complete == (good * ENTRY_SIZE == len(data))


def test_offsets_beyond_int64_are_not_entries():
    base = 2**63 - 10
    assert pairs(parse_time_index(packed((1, 9), (2, 10)), base)) == [(1, 2**63 - 1)]


@pytest.mark.parametrize(
    ("data", "position", "text"),
    [
        (packed((10, 5))[:-1], 0, "multiple of 12"),
        (packed((10, 5), (0, 0)), 12, r"last timestamp 0 \(zeros.*below the first, 10"),
        (packed((10, 5), (9, 6)), 12, "last timestamp 9 is below the first"),
        (packed((10, 5), (11, -1)), 12, "below the base offset 100"),
        (packed((10, 5), (9, 6), (11, 7)), 12, r"does not follow \(10, 105\)"),
        (packed((10, 5), (11, 4)), 12, "offsets must not fall"),
    ],
)
def test_check_names_the_entry_that_kafka_refuses(data, position, text):
    with pytest.raises(CorruptIndex, match=text) as caught:
        check_time_index(data, 100)
    assert caught.value.position == position


@pytest.mark.parametrize("data", [b"", packed((10, 0)), packed((10, 0), (11, 4)), bytes(24)])
def test_check_accepts_every_index_that_kafka_accepts(data):
    check_time_index(data, 100)


def _assert_can_be_right(index: TimeIndex, base: int) -> None:
    assert index.timestamps.dtype == index.offsets.dtype == np.int64
    assert len(index.timestamps) == len(index.offsets)
    assert all(a < b for a, b in zip([-1, *index.timestamps], index.timestamps, strict=False))
    assert all(a <= b for a, b in zip([base, *index.offsets], index.offsets, strict=False))


def test_any_damage_gives_a_sorted_index_or_a_kafkalog_error():
    data = packed((1700000000000, 0), (1700000000001, 300), (1700000100000, 70000), (1800000000000, 80000))
    for what, bytes_ in damaged(data):
        index = parse_time_index(bytes_, 2**33)
        _assert_can_be_right(index, 2**33)
        assert index.is_complete == (len(index) * ENTRY_SIZE == len(bytes_)), what
        with contextlib.suppress(CorruptIndex):
            check_time_index(bytes_, 2**33)
            assert len(bytes_) % ENTRY_SIZE == 0, what


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_parse_to_a_sorted_index(data, base):
    _assert_can_be_right(parse_time_index(data, base), base)


def test_missing_file_is_an_empty_index(tmp_path):
    index = load_time_index(tmp_path / "none", 7)
    assert (len(index), index.last, index.floor_before(2**62)) == (0, None, None)


def test_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(OSError, match="is not a regular file"):
        load_time_index(tmp_path, 0)


# --- writing


@pytest.fixture
def writer(tmp_path):
    with TimeIndexWriter(tmp_path / "index", 1000, max_index_size=50) as opened:
        yield opened


def test_new_index_is_preallocated_with_whole_entries_of_zeros(tmp_path, writer):
    with TimeIndexWriter(tmp_path / "default", 0):
        assert (tmp_path / "default").stat().st_size == 10485756
    assert (tmp_path / "index").read_bytes() == bytes(48)
    assert (writer.entries, writer.max_entries, writer.last_timestamp, writer.last_offset) == (0, 4, -1, 1000)


def test_timestamp_that_did_not_increase_adds_no_entry(writer):
    assert writer.maybe_append(100, 1001)
    assert not writer.maybe_append(100, 1002)
    assert not writer.maybe_append(99, 1003)
    assert (writer.entries, writer.last_timestamp, writer.last_offset) == (1, 100, 1001)


def test_records_without_timestamps_add_no_entry(writer):
    assert not writer.maybe_append(-1, 1001)
    assert not writer.maybe_append(-1, 1002, skip_full_check=True)
    assert writer.entries == 0


def test_first_entry_may_hold_timestamp_0_at_the_base_offset(writer):
    assert writer.maybe_append(0, 1000)
    assert writer.entries == 1


def test_last_slot_is_reserved_for_the_entry_added_on_roll(writer):
    for number in range(3):
        assert not writer.is_full
        writer.maybe_append(100 + number, 1000 + number)
    assert writer.is_full
    with pytest.raises(SegmentFull, match=r"full with 3 entries.*roll"):
        writer.maybe_append(200, 1010)
    assert not writer.maybe_append(102, 1010), "nothing to add, nothing to refuse"
    assert writer.maybe_append(200, 1010, skip_full_check=True)
    with pytest.raises(SegmentFull, match="full with 4 entries"):
        writer.maybe_append(300, 1020, skip_full_check=True)
    assert (writer.entries, writer.last_timestamp, writer.last_offset) == (4, 200, 1010)


def test_offset_below_the_last_is_an_error_and_an_equal_one_is_not(writer):
    writer.maybe_append(100, 1005)
    with pytest.raises(CorruptIndex, match="ends with offset 1005") as caught:
        writer.maybe_append(200, 1004)
    assert (caught.value.offset, caught.value.path) == (1004, writer.path)
    assert writer.maybe_append(200, 1005)


def test_offset_below_the_base_is_an_error_in_an_empty_index_too(writer):
    with pytest.raises(CorruptIndex):
        writer.maybe_append(100, 999)


def test_offset_2_31_above_the_base_does_not_fit(writer):
    with pytest.raises(SegmentFull, match="above the base offset 1000"):
        writer.maybe_append(100, 1000 + 2**31)
    assert writer.maybe_append(100, 1000 + 2**31 - 1)


def test_removing_the_only_entry_leaves_no_last_entry(writer):
    writer.maybe_append(100, 1005)
    writer.drop_last()
    assert (writer.entries, writer.last_timestamp, writer.last_offset) == (0, -1, 1000)
    assert writer.maybe_append(1, 1000)


def test_trimmed_index_is_full_until_it_is_resized(writer):
    writer.maybe_append(100, 1005)
    writer.trim()
    with open(writer.path, "rb") as file:
        assert file.read() == packed((100, 5))
    assert writer.is_full
    writer.resize_to_max()
    assert not writer.is_full
    assert writer.maybe_append(101, 1006)


def test_active_index_continues_after_its_last_valid_entry(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(packed((10, 5), (20, 6)) + bytes(24) + packed((90, 9)))
    with TimeIndexWriter.open_existing(path, 100, max_index_size=60) as opened:
        assert (opened.entries, opened.max_entries, opened.last_timestamp, opened.last_offset) == (2, 5, 20, 106)
        assert path.read_bytes() == packed((10, 5), (20, 6)) + bytes(36), "what is behind is erased"
        opened.maybe_append(30, 107)
    assert pairs(load_time_index(path, 100)) == [(10, 105), (20, 106), (30, 107)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(-50, 100), st.integers(0, 40)),
        st.tuples(st.sampled_from(["drop", "reopen", "reopen trimmed"]), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 2**40))
def test_random_appends_and_removals_leave_the_entries_in_the_file(tmp_path_factory, steps, base):
    path = tmp_path_factory.mktemp("model") / "index"
    model: list[tuple[int, int]] = []
    writer = TimeIndexWriter(path, base, max_index_size=600)
    for step, number, further in steps:
        if step == "append":
            timestamp, offset = model[-1] if model else (0, base)
            # Relative offset 0 is legal in the first entry only.
            timestamp, offset = timestamp + number, offset + further + (1 if model else 0)
            grown = timestamp > (model[-1][0] if model else -1) and (timestamp, offset) != (0, base)
            if timestamp < 0 or not grown:
                continue
            assert writer.maybe_append(timestamp, offset)
            model.append((timestamp, offset))
        elif step == "drop":
            if model:
                writer.drop_last()
                model.pop()
        else:
            if step == "reopen trimmed":
                writer.trim()
            writer.close()
            writer = TimeIndexWriter.open_existing(path, base, max_index_size=600)
        assert writer.entries == len(model)
        assert (writer.last_timestamp, writer.last_offset) == (model[-1] if model else (-1, base))
    index = load_time_index(path, base)
    assert pairs(index) == model
    writer.trim()
    writer.close()
    check_time_index(path.read_bytes(), base)
    assert load_time_index(path, base).is_complete
