"""The offset index: reading what Kafka wrote, writing the same, and surviving everything else."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptIndex, SegmentFull
from kafkalog_spark.format.index_file import read_entries
from kafkalog_spark.format.offset_index import (
    ENTRY_SIZE,
    OffsetIndex,
    OffsetIndexWriter,
    check_offset_index,
    load_offset_index,
    parse_offset_index,
    search_file,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged
from tests.log.helpers.golden_segments import CRASHED_SEGMENTS, GOLDEN_SEGMENTS, GoldenSegment

INTS = struct.Struct(">ii")


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(INTS.pack(*entry) for entry in entries)


def pairs(index: OffsetIndex) -> list[tuple[int, int]]:
    return list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_golden_entries_have_last_offset_and_position_of_a_batch(segment: GoldenSegment):
    index = load_offset_index(segment.offset_index, segment.base_offset)
    assert len(index) * ENTRY_SIZE == segment.offset_index.stat().st_size, "every byte of the file is understood"
    ends = {batch.position: batch.last_offset for batch in segment.batches}
    for offset, position in pairs(index):
        if segment.one_batch_an_append:
            assert ends[position] == offset
        else:
            assert ends[position] <= offset
    check_offset_index(segment.offset_index.read_bytes(), segment.base_offset)


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_golden_index_has_no_entry_for_the_first_batch(segment: GoldenSegment):
    index = load_offset_index(segment.offset_index, segment.base_offset)
    assert 0 not in index.positions
    assert segment.base_offset not in index.offsets


@pytest.mark.parametrize("segment", GOLDEN_SEGMENTS, ids=str)
def test_scan_from_the_floor_entry_finds_every_offset(segment: GoldenSegment):
    index = load_offset_index(segment.offset_index, segment.base_offset)
    for batch in segment.batches:
        for offset in {batch.base_offset, batch.last_offset}:
            found = index.floor(offset)
            assert found.position <= batch.position
            assert found.offset <= offset


@pytest.mark.parametrize("segment", [s for s in GOLDEN_SEGMENTS if s.one_batch_an_append], ids=str)
def test_written_index_equals_kafkas(segment: GoldenSegment, tmp_path):
    with OffsetIndexWriter(tmp_path / "index", segment.base_offset) as writer:
        for batch, _timestamp, _offset in segment.indexed_batches():
            writer.append(batch.last_offset, batch.position)
        writer.trim()
    assert (tmp_path / "index").read_bytes() == segment.offset_index.read_bytes()


@pytest.mark.parametrize("segment", CRASHED_SEGMENTS, ids=str)
def test_padding_of_a_crashed_index_is_not_an_entry(segment: GoldenSegment):
    crashed = segment.offset_index.read_bytes()
    clean = segment.after_clean_restart.offset_index.read_bytes()
    index = load_offset_index(segment.offset_index, segment.base_offset)
    assert pairs(index) == pairs(parse_offset_index(clean, segment.base_offset))
    assert pairs(parse_offset_index(crashed, segment.base_offset)) == pairs(index)
    check_offset_index(crashed, segment.base_offset)


def test_floor_returns_the_largest_entry_at_or_below_the_offset():
    index = parse_offset_index(packed((10, 100), (20, 200), (30, 300)), 1000)
    assert index.floor(999) == (1000, 0)
    assert index.floor(1009) == (1000, 0)
    assert index.floor(1010) == (1010, 100)
    assert index.floor(1029) == (1020, 200)
    assert index.floor(2**62) == (1030, 300)


def test_ceiling_position_returns_the_first_entry_at_or_after_the_offset():
    index = parse_offset_index(packed((10, 100), (20, 200)), 1000)
    assert index.ceiling_position(0) == (1010, 100)
    assert index.ceiling_position(100) == (1010, 100)
    assert index.ceiling_position(101) == (1020, 200)
    assert index.ceiling_position(201) is None


def test_entries_after_returns_later_entries():
    index = parse_offset_index(packed((10, 100), (20, 200), (30, 300)), 1000)
    for offset, expected in ((0, [1010, 1020, 1030]), (1010, [1020, 1030]), (1011, [1020, 1030]), (1030, [])):
        offsets, positions = index.entries_after(offset)
        assert offsets.tolist() == expected
        assert positions.tolist() == [(offset - 1000) * 10 for offset in expected]
        assert offsets.dtype == positions.dtype == np.int64


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (b"", 0),
        (packed((0, 0)), 0),
        (packed((0, 50)), 0),
        (packed((5, 50), (0, 0), (9, 90)), 1),
        (packed((5, 50), (5, 60)), 1),
        (packed((5, 50), (4, 60)), 1),
        (packed((5, 50), (6, 50)), 1),
        (packed((5, 50), (6, 49)), 1),
        (packed((-5, 50)), 0),
        (packed((5, -50)), 0),
        (packed((5, 50), (6, 60))[:-1], 1),
        (packed((2**31 - 1, 2**31 - 1)), 1),
        (packed((5, 50), (-(2**31), -(2**31))), 1),
    ],
)
def test_parsing_stops_at_the_first_invalid_entry(data, good):
    assert pairs(parse_offset_index(data, 7)) == [(7 + a, b) for a, b in INTS.iter_unpack(data[: good * ENTRY_SIZE])]


def test_offsets_beyond_int64_are_not_entries():
    base = 2**63 - 10
    assert pairs(parse_offset_index(packed((9, 1), (10, 2)), base)) == [(2**63 - 1, 1)]


@pytest.mark.parametrize(
    ("data", "position", "text"),
    [
        (packed((5, 50))[:-1], 0, "multiple of 8"),
        (packed((5, 50), (6, 60)) + b"\0", 16, "multiple of 8"),
        (packed((5, 50), (-1, 60)), 8, "below the base offset 100"),
        (packed((5, 50), (4, 60)), 8, r"does not follow \(105, 50\)"),
        (packed((5, 50), (6, 40), (0, 0)), 8, "must rise"),
    ],
)
def test_check_names_the_entry_that_kafka_refuses(data, position, text):
    with pytest.raises(CorruptIndex, match=text) as caught:
        check_offset_index(data, 100)
    assert caught.value.position == position


@pytest.mark.parametrize("data", [b"", packed((5, 50)), packed((5, 50), (0, 0), (0, 0)), packed((0, 0), (0, 0))])
def test_check_accepts_every_index_that_a_broker_leaves(data):
    check_offset_index(data, 100)


def _assert_can_be_right(index: OffsetIndex) -> None:
    assert index.offsets.dtype == index.positions.dtype == np.int64
    assert len(index.offsets) == len(index.positions)
    assert all(a < b for a, b in zip([index.base_offset, *index.offsets], index.offsets, strict=False))
    assert all(a < b for a, b in zip([-1, *index.positions], index.positions, strict=False))


def test_any_damage_gives_a_sorted_index_or_a_kafkalog_error():
    data = packed((5, 50), (300, 4000), (70000, 66000), (80000, 20000000))
    for what, bytes_ in damaged(data):
        _assert_can_be_right(parse_offset_index(bytes_, 2**33))
        with contextlib.suppress(CorruptIndex):
            check_offset_index(bytes_, 2**33)
            assert len(bytes_) % ENTRY_SIZE == 0, what


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_parse_to_a_sorted_index(data, base):
    _assert_can_be_right(parse_offset_index(data, base))


def test_missing_file_is_an_empty_index(tmp_path):
    index = load_offset_index(tmp_path / "none", 7)
    assert len(index) == 0
    assert index.floor(100) == (7, 0)


def test_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(OSError, match="is not a regular file"):
        load_offset_index(tmp_path, 0)


def test_large_index_is_read_completely(tmp_path):
    entries = np.arange(1, 100_001, dtype=">i4").repeat(2)
    (tmp_path / "index").write_bytes(entries.tobytes() + bytes(8))
    index = load_offset_index(tmp_path / "index", 5)
    assert index.offsets.tolist() == list(range(6, 100_006))


def test_padding_of_an_index_is_not_read_completely(tmp_path):
    with OffsetIndexWriter(tmp_path / "index", 0) as writer:
        writer.append(7, 70)
    assert len(read_entries(tmp_path / "index", ENTRY_SIZE)) < (tmp_path / "index").stat().st_size / 40
    assert pairs(load_offset_index(tmp_path / "index", 0)) == [(7, 70)]


# --- writing


@pytest.fixture
def writer(tmp_path):
    with OffsetIndexWriter(tmp_path / "00000000000000001000.index", 1000, max_index_size=84) as opened:
        yield opened


def test_new_index_is_preallocated_with_whole_entries_of_zeros(tmp_path, writer):
    with OffsetIndexWriter(tmp_path / "default", 0) as default:
        assert (tmp_path / "default").stat().st_size == 10 * 1024 * 1024
        assert default.max_entries == 1310720
    path = tmp_path / "00000000000000001000.index"
    assert path.read_bytes() == bytes(80)
    assert (writer.entries, writer.max_entries, writer.last_offset, writer.is_full) == (0, 10, 1000, False)


def test_index_smaller_than_one_entry_has_room_for_one(tmp_path):
    with OffsetIndexWriter(tmp_path / "index", 0, max_index_size=4) as index:
        assert (index.max_entries, index.is_full) == (1, False)
        index.append(3, 70)
        assert index.is_full
    with OffsetIndexWriter.open_existing(tmp_path / "index", 0, max_index_size=7) as index:
        assert (index.entries, index.max_entries, index.last_offset) == (1, 1, 3)


def test_append_to_a_full_index_is_an_error_that_suggests_rolling(writer):
    for number in range(10):
        assert not writer.is_full
        writer.append(1001 + number, 100 + number)
    assert writer.is_full
    with pytest.raises(SegmentFull, match=r"full with 10 entries.*roll") as caught:
        writer.append(2000, 200)
    assert (caught.value.offset, caught.value.position) == (2000, 80)
    assert writer.last_offset == 1010


@pytest.mark.parametrize("offset", [1005, 1004, 999, 0])
def test_offset_that_is_not_above_the_last_is_an_error(writer, offset):
    writer.append(1005, 50)
    with pytest.raises(CorruptIndex, match="ends with offset 1005") as caught:
        writer.append(offset, 60)
    assert caught.value.offset == offset
    assert caught.value.path == writer.path
    assert writer.entries == 1


def test_offset_below_the_base_is_an_error_in_an_empty_index_too(writer):
    with pytest.raises(CorruptIndex):
        writer.append(999, 60)


def test_offset_2_31_above_the_base_does_not_fit(writer):
    with pytest.raises(SegmentFull, match="too far from the base offset 1000"):
        writer.append(1000 + 2**31, 60)
    with pytest.raises(SegmentFull, match="too far"):
        writer.append(1001, 2**31)
    writer.append(1000 + 2**31 - 1, 2**31 - 1)
    assert writer.last_offset == 1000 + 2**31 - 1


def test_removing_an_entry_restores_the_size_of_a_full_trimmed_index(writer):
    for number in range(1, 11):
        writer.append(1000 + number, number)
    writer.trim()
    writer.drop_last()
    assert (writer.entries, writer.max_entries, writer.is_full) == (9, 10, False)


def test_removing_the_only_entry_leaves_an_empty_preallocated_index(writer):
    writer.append(1010, 10)
    writer.drop_last()
    assert (writer.entries, writer.last_offset) == (0, 1000)
    assert open_bytes(writer.path) == bytes(80)


def test_trimmed_index_is_full_until_it_is_resized(writer):
    writer.append(1010, 10)
    writer.trim()
    assert open_bytes(writer.path) == packed((10, 10))
    assert writer.is_full
    writer.resize_to_max()
    assert not writer.is_full
    writer.append(1020, 20)
    assert open_bytes(writer.path) == packed((10, 10), (20, 20)) + bytes(64)


def test_closed_index_refuses_an_append(writer):
    writer.close()
    writer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.append(1010, 10)


def test_active_index_continues_after_its_last_valid_entry(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(packed((5, 50), (6, 60), (0, 0), (9, 90)))
    with OffsetIndexWriter.open_existing(path, 100, max_index_size=40) as opened:
        assert (opened.entries, opened.max_entries, opened.last_offset) == (2, 5, 106)
        assert path.read_bytes() == packed((5, 50), (6, 60)) + bytes(24), "what is behind is erased"
        opened.append(107, 70)
    assert pairs(load_offset_index(path, 100)) == [(105, 50), (106, 60), (107, 70)]


def test_missing_file_cannot_be_opened_as_existing(tmp_path):
    with pytest.raises(FileNotFoundError):
        OffsetIndexWriter.open_existing(tmp_path / "none", 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40), st.integers(1, 5000)),
        st.tuples(st.sampled_from(["drop", "trim and resize", "reopen", "reopen trimmed"]), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.integers(0, 2**40))
def test_random_appends_and_removals_leave_the_entries_in_the_file(tmp_path_factory, steps, base):
    path = tmp_path_factory.mktemp("model") / "index"
    model: list[tuple[int, int]] = []
    writer = OffsetIndexWriter(path, base, max_index_size=400)
    for step, number, size in steps:
        if step == "append":
            last = model[-1] if model else (base, 0)
            model.append((last[0] + number, last[1] + size))
            writer.append(*model[-1])
        elif step == "drop":
            if model:
                writer.drop_last()
                model.pop()
        else:
            if step != "reopen":
                writer.trim()
            if step == "trim and resize":
                writer.resize_to_max()
            else:
                writer.close()
                writer = OffsetIndexWriter.open_existing(path, base, max_index_size=400)
        assert writer.entries == len(model)
        assert writer.last_offset == (model[-1][0] if model else base)
    index = load_offset_index(path, base)
    assert pairs(index) == model
    assert writer.last == index.floor(2**62)
    for offset in range(base, base + 210, 7):
        floor = index.floor(offset)
        assert search_file(writer._fd, writer.entries, offset - base, 0) == (floor.offset - base, floor.position)
    for position in range(0, 9000, 700):
        floor = index.floor_position(position)
        assert search_file(writer._fd, writer.max_entries, position, 1) == (floor.offset - base, floor.position)
    writer.trim()
    writer.close()
    check_offset_index(path.read_bytes(), base)
    assert path.stat().st_size == len(model) * ENTRY_SIZE


def open_bytes(path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_reading_an_index_does_not_load_numba():
    code = (
        "import sys; from kafkalog_spark.format import names, offset_index, time_index, transaction_index, "
        "producer_snapshot, checkpoint, partition_metadata, meta_properties, atomic_file, fsync; "
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=golden_data.GOLDEN.parent.parent).returncode == 0
