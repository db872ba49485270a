"""Small batches that decompress to a lot: bounded by the limit, and before that by the batch's own record count."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs import scratch
from tests.log.helpers import legacy_builder
from tests.log.helpers.batch_builder import V2Record, batch, compressed, encoded, sealed, varint
from tests.log.helpers.damaged_log import AFTER, BEFORE, TIME, check_place, read_all, records, write_segments
from tests.log.helpers.legacy_builder import LegacyRecord, message_set, wrapper

MEBI = 1 << 20
BOMB = 64 * MEBI
LIMIT = 4 * MEBI
TOO_FAR = f"decompress to more than {LIMIT} bytes"
READER = 32 * MEBI
"""What reading takes without any bomb: window, header table and two sets of row buffers."""
CODECS = [codec for codec in Codec if codec != Codec.NONE]


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fail when more than `size` bytes are in use at once, of what Python and numpy allocate: every buffer is, once
    address ranges that are reserved without being used are allocated step by step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "_MAX_RESERVED", 0)
        patch.setattr(scratch, "_reserved", lambda size: np.empty(size, np.uint8))
        tracemalloc.start()
        try:
            yield
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak <= size, f"{peak / MEBI:.0f} MiB"


def bomb_log(tmp_path: Path, bomb: bytes) -> Path:
    assert len(bomb) < BOMB // 15, "it is small as it lies in the file"
    return write_segments(tmp_path, {0: BEFORE + bomb + AFTER})


def huge_record() -> bytes:
    """One record of zeros, which is all right but for its size."""
    body = bytes(3) + varint(-1) + varint(BOMB) + bytes(BOMB) + varint(0)
    return varint(len(body)) + body


@pytest.mark.parametrize("codec", CODECS)
def test_batch_that_decompresses_to_more_than_the_limit_is_an_error(codec: Codec, tmp_path: Path) -> None:
    bomb = batch(5, [V2Record(5, TIME)], payload=huge_record(), codec=codec)
    directory = bomb_log(tmp_path, bomb)
    with (
        at_most(READER + 4 * LIMIT),
        pytest.raises(CorruptBatch, match=TOO_FAR) as raised,
    ):
        read_all(directory, max_decompressed=LIMIT)
    check_place(raised.value, directory, len(BEFORE), 5)


@pytest.mark.parametrize("variant", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_decompression_stops_after_the_record_count_of_the_batch(codec: Codec, variant: int, tmp_path: Path) -> None:
    payload = encoded(records(5), 5, TIME + 5) + bytes(BOMB)
    bomb = batch(5, records(5), payload=payload, codec=codec, variant=variant)
    directory = bomb_log(tmp_path, bomb)
    with (
        at_most(READER + 16 * MEBI),
        pytest.raises(CorruptBatch, match="than the 5 that its header announces") as raised,
    ):
        read_all(directory, max_decompressed=2 * BOMB)
    check_place(raised.value, directory, len(BEFORE), 5)


@pytest.mark.parametrize("count", [0, 1, 5, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_zeros_are_not_decoded_as_records(codec: Codec, count: int, tmp_path: Path) -> None:
    """A zero is the length of an empty record: by lengths alone, 2^31-1 of them would be believed."""
    bomb = batch(5, records(5), payload=bytes(BOMB), codec=codec, count=count)
    directory = bomb_log(tmp_path, bomb)
    with at_most(READER + 4 * LIMIT), pytest.raises(CorruptBatch) as raised:
        read_all(directory, max_decompressed=LIMIT)
    check_place(raised.value, directory, len(BEFORE), 5)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [legacy_builder.GZIP, legacy_builder.SNAPPY, legacy_builder.LZ4])
def test_wrapper_that_decompresses_to_more_than_the_limit_is_an_error(codec: int, magic: int, tmp_path: Path) -> None:
    before, after = (
        message_set(1, [LegacyRecord(0, None, b"a", TIME)]),
        message_set(1, [LegacyRecord(6, None, b"b", TIME)]),
    )
    bomb = wrapper(magic, codec, [LegacyRecord(5, None, bytes(BOMB), TIME)])
    directory = write_segments(tmp_path, {0: before + bomb + after})
    with (
        at_most(READER + 4 * LIMIT),
        pytest.raises(CorruptBatch, match=TOO_FAR) as raised,
    ):
        read_all(directory, max_decompressed=LIMIT)
    check_place(raised.value, directory, len(before), 5)


@pytest.mark.parametrize("codec", CODECS)
def test_large_batch_below_the_limit_is_read(codec: Codec, tmp_path: Path) -> None:
    size = 3 * MEBI
    large = batch(5, [V2Record(5, TIME, None, bytes(size))], codec=codec)
    directory = write_segments(tmp_path, {0: BEFORE + large})
    rows = read_all(directory, max_decompressed=LIMIT)
    assert [len(row["value"]) for row in rows[5:]] == [size]


def test_snappy_block_is_refused_by_its_announced_size(tmp_path: Path) -> None:
    """Raw snappy says its size first, and the library would allocate it: 4 GB are refused before."""
    stream = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    head = batch(5, records(5), codec=Codec.SNAPPY)[:61]
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(stream)) + stream
    for data in (stream, framed):
        directory = write_segments(tmp_path, {0: BEFORE + sealed(head + data) + AFTER})
        with at_most(READER), pytest.raises(CorruptBatch, match="decompress to more than") as raised:
            read_all(directory)
        check_place(raised.value, directory, len(BEFORE), 5)


def test_bombs_compress_to_a_small_fraction() -> None:
    assert all(len(compressed(codec, bytes(BOMB))) < BOMB // 15 for codec in CODECS)


@pytest.mark.parametrize("codec", CODECS)
def test_record_count_beyond_the_limit_is_refused_for_header_columns(codec: Codec, tmp_path: Path) -> None:
    """Offsets alone are told by the header: 100 bytes that announce 200 million records would be as many rows."""
    count = LIMIT // 7 + 1  # a record has at least 7 bytes
    lying = batch(5, records(5), codec=codec, count=count, last_offset=4 + count)
    directory = write_segments(tmp_path, {0: BEFORE + lying})
    with at_most(READER), pytest.raises(CorruptBatch, match="runs past the end of the batch") as raised:
        read_all(directory, columns=("offset",), max_decompressed=LIMIT)
    check_place(raised.value, directory, len(BEFORE), 5)


@pytest.mark.parametrize("codec", range(len(Codec), 8))
def test_unknown_codec_is_refused_for_header_columns(codec: int, tmp_path: Path) -> None:
    odd = batch(5, records(5), attributes=codec)
    directory = write_segments(tmp_path, {0: BEFORE + odd})
    with pytest.raises(UnsupportedFormat, match=f"codec {codec}") as raised:
        read_all(directory, columns=("offset",))
    check_place(raised.value, directory, len(BEFORE), 5)
