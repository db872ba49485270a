"""Chunks of a segment: their sizes as the manifest keeps them, and which of them a range needs."""

from __future__ import annotations

import base64
from itertools import pairwise

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptManifest
from kafkalog_spark.log.tiered.chunk_sizes import (
    MAX_CHUNKS,
    chunk_sizes_from_text,
    chunk_sizes_to_text,
    decode_chunk_sizes,
    encode_chunk_sizes,
)
from kafkalog_spark.log.tiered.chunks import Chunk, ChunkIndex, ObjectRange

# ChunkIndexSerializationTest of Aiven's plugin
AIVEN_TEXT = "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"
AIVEN_BYTES = bytes.fromhex("00000003 0000000a 01 000a 0000001e")


def sizes_of(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int64)


def test_chunk_sizes_of_aivens_tests_are_decoded() -> None:
    assert decode_chunk_sizes(AIVEN_BYTES).tolist() == [10, 20, 30]
    assert encode_chunk_sizes(sizes_of(10, 20, 30)) == AIVEN_BYTES
    assert chunk_sizes_from_text(AIVEN_TEXT, 3).tolist() == [10, 20, 30]


def test_chunks_of_aivens_tests_are_located() -> None:
    index = ChunkIndex.of_variable(100, 250, chunk_sizes_from_text(AIVEN_TEXT, 3))
    assert [index.chunk(number) for number in range(3)] == [
        Chunk(0, 0, 100, 0, 10),
        Chunk(1, 100, 100, 10, 20),
        Chunk(2, 200, 50, 30, 30),
    ]
    assert (index.count, index.object_size) == (3, 60)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), "00000000"),
        ((7,), "00000001 00000007"),
        ((7, 300), "00000002 00000007 01 00 0000012c"),
        ((5, 5, 5), "00000003 00000005 01 0000 00000005"),
        ((1, 256, 2), "00000003 00000001 01 00ff 00000002"),
        ((1, 257, 2), "00000003 00000001 02 00000100 00000002"),
        ((1, 65_537, 2), "00000003 00000001 03 000000010000 00000002"),
        ((1, 2**31 - 1, 2), "00000003 00000001 04 000000007ffffffe 00000002"),
    ],
)
def test_encoded_width_is_that_of_the_largest_value(sizes: tuple[int, ...], expected: str) -> None:
    data = bytes.fromhex(expected)
    assert encode_chunk_sizes(sizes_of(*sizes)) == data
    assert decode_chunk_sizes(data).tolist() == list(sizes)


@given(st.lists(st.integers(0, 2**31 - 1) | st.integers(1000, 1300), max_size=60))
def test_chunk_sizes_round_trip(sizes: list[int]) -> None:
    given_sizes = np.array(sizes, np.int64)
    assert decode_chunk_sizes(encode_chunk_sizes(given_sizes)).tolist() == sizes
    assert chunk_sizes_from_text(chunk_sizes_to_text(given_sizes), len(sizes)).tolist() == sizes


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "has 0 bytes, but the count alone takes 4"),
        (AIVEN_BYTES[:8], "has 8 bytes, but 3 chunks take more"),
        (AIVEN_BYTES[:-1], "has 14 bytes, but its 3 chunks take 15"),
        (AIVEN_BYTES + b"\0", "has 16 bytes, but its 3 chunks take 15"),
        (AIVEN_BYTES[:8] + b"\0" + AIVEN_BYTES[9:], "has 0 bytes per value"),
        (AIVEN_BYTES[:8] + b"\5" + AIVEN_BYTES[9:], "has 5 bytes per value"),
        (b"\xff" * 15, "4294967295 chunks"),
        (b"\0\0\0\1\0\0\0", "has 7 bytes, but its 1 chunks take 8"),
    ],
)
def test_damaged_sizes_are_errors(data: bytes, text: str) -> None:
    with pytest.raises(CorruptManifest, match=text):
        decode_chunk_sizes(data)


def frame(data: bytes) -> str:
    return base64.b64encode(zstandard.ZstdCompressor().compress(data)).decode()


@pytest.mark.parametrize(
    ("text", "expected", "wrong"),
    [
        ("%%%", 3, "not base64"),
        ("KLUv/SAP", 3, "cannot be decompressed"),
        ("AAAA", 3, "cannot be decompressed"),
        (AIVEN_TEXT + "AAAA", 3, "cannot be decompressed"),
        (AIVEN_TEXT, 4, "lists 3 chunks, but the segment's size requires 4"),
        (frame(bytes(1 << 30)), 3, "decompresses to 1073741824 bytes, expected at most 25"),
        (AIVEN_TEXT, MAX_CHUNKS + 1, "1048577 chunks"),
    ],
)
def test_damaged_texts_are_errors_and_decompress_to_no_more_than_is_expected(
    text: str, expected: int, wrong: str
) -> None:
    with pytest.raises(CorruptManifest, match=wrong):
        chunk_sizes_from_text(text, expected)


def test_frame_without_its_size_is_read_and_bounded() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    assert chunk_sizes_from_text(base64.b64encode(compressor.compress(AIVEN_BYTES)).decode(), 3).tolist() == [
        10,
        20,
        30,
    ]
    with pytest.raises(CorruptManifest, match="cannot be decompressed"):
        chunk_sizes_from_text(base64.b64encode(compressor.compress(bytes(1 << 20))).decode(), 3)


@given(st.integers(1, 40), st.integers(0, 300), st.integers(0, 28), st.booleans(), st.data())
def test_range_of_chunks_equals_a_slice_of_the_bytes(
    chunk_size: int, file_size: int, overhead: int, fixed: bool, data: st.DataObject
) -> None:
    """Against bytes that are really cut, transformed and put together."""
    segment = bytes(number % 251 for number in range(file_size))
    pieces = [segment[at : at + chunk_size] for at in range(0, file_size, chunk_size)]
    pads = [overhead if fixed else (overhead * number) % 29 for number in range(len(pieces))]
    transformed = [b"#" * pad + piece for pad, piece in zip(pads, pieces, strict=True)]
    if fixed:
        last = len(transformed[-1]) if pieces else 0
        index = ChunkIndex.of_fixed(chunk_size, file_size, chunk_size + overhead, last)
    else:
        index = ChunkIndex.of_variable(chunk_size, file_size, sizes_of(*map(len, transformed)))
    stored = b"".join(transformed)
    begin, end = sorted((data.draw(st.integers(0, file_size)), data.draw(st.integers(0, file_size))))

    wanted = index.object_range(begin, end)
    fetched = stored[wanted.begin : wanted.end]
    originals = []
    for number in wanted.chunks:
        chunk = index.chunk(number)
        at = chunk.position - wanted.begin
        originals.append(fetched[at + pads[number] : at + chunk.size])
        assert originals[-1] == segment[chunk.original_position :][: chunk.original_size]
    assert b"".join(originals)[begin % chunk_size :][: end - begin] == segment[begin:end]
    assert sum(map(len, originals)) - len(segment[begin:end]) < 2 * chunk_size  # no chunk that is not needed

    parts = [pieces[chunk.number][first:last] for chunk, first, last in index.slices(begin, end)]
    assert b"".join(parts) == segment[begin:end]
    assert all(parts)
    assert index.object_size == len(stored)
    assert index.sizes.tolist() == list(map(len, transformed))


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 250, ObjectRange(0, 60, range(3))),
        (0, 100, ObjectRange(0, 10, range(1))),
        (99, 101, ObjectRange(0, 30, range(2))),
        (100, 200, ObjectRange(10, 30, range(1, 2))),
        (249, 250, ObjectRange(30, 60, range(2, 3))),
        (100, 100, ObjectRange(0, 0, range(0))),
    ],
)
def test_ranges_at_chunk_boundaries_are_located(begin: int, end: int, expected: ObjectRange) -> None:
    assert ChunkIndex.of_variable(100, 250, sizes_of(10, 20, 30)).object_range(begin, end) == expected


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (5, 4), (0, 251), (251, 251)])
def test_ranges_outside_the_segment_are_refused(begin: int, end: int) -> None:
    with pytest.raises(ValueError, match="of a segment of 250"):
        ChunkIndex.of_variable(100, 250, sizes_of(10, 20, 30)).object_range(begin, end)


def test_positions_are_read_only() -> None:
    index = ChunkIndex.of_fixed(100, 1000, 110, 110)
    assert index.positions.dtype == np.int64
    assert index.positions.tolist() == list(range(0, 1101, 110))
    with pytest.raises(ValueError, match="read-only"):
        index.positions[0] = 1
    with pytest.raises(IndexError):
        index.chunk(10)
    assert all(
        after.position == before.position + before.size for before, after in pairwise(map(index.chunk, range(10)))
    )


@pytest.mark.parametrize(
    ("given_sizes", "text"),
    [
        ((0, 10, 5, 5), "originalChunkSize is 0"),
        ((10, -1, 5, 5), "originalFileSize is -1"),
        ((10, 2**31, 5, 5), "originalFileSize is 2147483648"),
        ((1, 2**31 - 1, 1, 1), "2147483647 chunks"),
        ((10, 20, 0, 5), "has 0 bytes"),
        ((10, 20, 5, 2**70), "has 2147483648 bytes"),
    ],
)
def test_impossible_sizes_are_refused(given_sizes: tuple[int, int, int, int], text: str) -> None:
    with pytest.raises(CorruptManifest, match=text):
        ChunkIndex.of_fixed(*given_sizes)


def test_number_of_sizes_must_equal_the_number_of_chunks() -> None:
    with pytest.raises(CorruptManifest, match="the manifest lists 2 chunks, expected 3 for 250 bytes in chunks of 100"):
        ChunkIndex.of_variable(100, 250, sizes_of(10, 20))
