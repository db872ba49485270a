"""Decompression: every framing that clients write, and broken streams that only ever raise our error."""

from __future__ import annotations

import gzip
import random
import struct
import threading
import zlib

import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptBatch, DecompressesTooFar, UnsupportedFormat
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs import zstd_codec
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from tests.log.helpers import legacy_builder
from tests.log.helpers.batch_builder import LZ4, SNAPPY, ZSTD, compressed
from tests.log.helpers.compressed_streams import lz4_linked_blocks, xerial_blocks

CODECS = tuple(codec for codec in Codec if codec != Codec.NONE)
TEXT = b"the quick brown fox jumps over the lazy dog " * 40


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


def unfold(codec: int, data: bytes, limit: int = 64 << 20, start: int = 0) -> bytes:
    scratch = Scratch(16)
    output = Output(scratch, start, limit)
    end = decompress(codec, memoryview(data), output)
    return bytes(scratch.view[start:end])


@pytest.mark.parametrize("variant", range(16))
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 3, 1000, 64 << 10, (64 << 10) + 1, 300_000])
def test_every_framing_round_trips(codec: Codec, variant: int, size: int) -> None:
    for data in ((TEXT * (size // len(TEXT) + 1))[:size], noise(size)):
        assert unfold(codec, compressed(codec, data, variant)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_output_of_our_compressor_round_trips(codec: Codec) -> None:
    for data in (b"", TEXT, noise(200_000)):
        assert unfold(codec, compress(codec, data)) == data


def test_wrong_lz4_header_checksum_of_v0_is_ignored() -> None:
    data = legacy_builder.compressed(legacy_builder.LZ4, TEXT, wrong_lz4_checksum=True)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(data)
    assert unfold(Codec.LZ4, data) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_output_is_appended_to_the_buffer(codec: Codec) -> None:
    scratch = Scratch(16)
    at = 0
    for data in (TEXT, b"x", noise(70_000)):
        at = decompress(codec, memoryview(compressed(codec, data, 1)), Output(scratch, at, 1 << 20))
    assert bytes(scratch.view[:at]) == TEXT + b"x" + noise(70_000)


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_limit_is_exact(codec: Codec) -> None:
    data = compressed(codec, TEXT)
    assert unfold(codec, data, limit=len(TEXT)) == TEXT
    with pytest.raises(CorruptBatch, match=f"decompress to more than {len(TEXT) - 1} bytes"):
        unfold(codec, data, limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", [-1, 0, *range(len(Codec), 8)])
def test_unknown_codecs_are_not_supported(codec: int) -> None:
    with pytest.raises(UnsupportedFormat, match=f"compression codec {codec} is not known"):
        unfold(codec, b"")


def outcome(codec: int, data: bytes) -> bytes | None:
    """The bytes, None for CorruptBatch; any other exception fails the test that asks."""
    try:
        return unfold(codec, data, limit=1 << 20)
    except CorruptBatch as error:
        assert "\n" not in str(error)  # noqa: PT017
        return None


@pytest.mark.parametrize("variant", [0, 1, 2, 3, 15])
@pytest.mark.parametrize("codec", CODECS)
def test_stream_cut_anywhere_gives_an_error_or_a_prefix(codec: Codec, variant: int) -> None:
    """The record count catches a beginning: zstd's reader does not tell the end of a frame from that of the input."""
    text = TEXT[:400]
    data = compressed(codec, text, variant)
    errors = 0
    for size in range(len(data)):
        found = outcome(codec, data[:size])
        assert found is None or text.startswith(found), size
        errors += found is None
    assert errors > 0 or codec == Codec.ZSTD


@pytest.mark.parametrize("variant", [0, 1, 2, 3, 15])
@pytest.mark.parametrize("codec", CODECS)
def test_stream_with_a_changed_byte_raises_nothing_but_our_error(codec: Codec, variant: int) -> None:
    data = compressed(codec, TEXT[:400], variant)
    for at in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            outcome(codec, data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.booleans())
def test_any_bytes_raise_nothing_but_our_error(codec: Codec, data: bytes, with_magic: bool) -> None:
    magic = {
        Codec.GZIP: b"\x1f\x8b\x08\x00",
        Codec.SNAPPY: b"\x82SNAPPY\x00" + bytes(8),
        Codec.LZ4: b"\x04\x22\x4d\x18",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    outcome(codec, magic[codec] + data if with_magic else data)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100])
def test_xerial_block_longer_than_its_data_is_an_error(size: int) -> None:
    data = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size) + b"abc"
    with pytest.raises(CorruptBatch, match=f"a snappy block announces {size} bytes, 3 are left"):
        unfold(Codec.SNAPPY, data)


def test_lz4_error_names_the_fault() -> None:
    frame = compressed(Codec.LZ4, TEXT)
    for data, text in (
        (b"\x00" + frame[1:], "does not start with the LZ4 magic number"),
        (frame[:4] + b"\x00" + frame[5:], "version 0"),
        (frame[:5] + b"\x00" + frame[6:], "block size code 0"),
        (frame[:7] + b"\xff\xff\xff\x7f" + frame[11:], "an lz4 block announces 2147483647 bytes"),
    ):
        with pytest.raises(CorruptBatch, match=text):
            unfold(Codec.LZ4, data)


def test_two_threads_decompress_at_once() -> None:
    """A second scan begins and ends while the first is in the middle of a batch, as threads of one process may do."""
    first, second = noise(3 << 20), noise(2 << 20)[::-1]
    for codec in CODECS:
        found: list[bytes] = []

        def another_scan(start: int, end: int, codec: Codec = codec, found: list[bytes] = found) -> None:
            if not found:
                thread = threading.Thread(target=lambda: found.append(unfold(codec, compressed(codec, second))))
                thread.start()
                thread.join()

        scratch = Scratch()
        end = decompress(codec, memoryview(compressed(codec, first)), Output(scratch, 0, 4 << 20, another_scan))
        assert found == [second]
        assert bytes(scratch.view[:end]) == first


def test_two_threads_use_separate_zstd_contexts() -> None:
    """zstd contexts are not thread safe; one thread's is kept from batch to batch."""
    contexts = []

    def context_after_a_batch() -> None:
        unfold(Codec.ZSTD, compressed(Codec.ZSTD, b"ab"))
        contexts.append(zstd_codec._decompressor.context)

    context_after_a_batch()
    thread = threading.Thread(target=context_after_a_batch)
    thread.start()
    thread.join()
    context_after_a_batch()
    assert None not in contexts
    assert contexts[0] is contexts[2]
    assert contexts[0] is not contexts[1]


def test_number_of_gzip_members_is_limited() -> None:
    """Each costs time, and they need not hold anything: 50 thousand of them fit into a megabyte."""
    members = gzip.compress(b"ab", mtime=0) * 10_000
    assert unfold(Codec.GZIP, members) == b"ab" * 10_000
    with pytest.raises(CorruptBatch, match="more than 10000 members"):
        unfold(Codec.GZIP, members + gzip.compress(b"", mtime=0))


def test_gzip_member_after_a_long_one_is_read() -> None:
    """Members begin anywhere in the pieces that are handed to zlib."""
    for size in ((64 << 10) - 30, 64 << 10, (64 << 10) + 30, 200_000):
        parts = [noise(size), TEXT, b"", bytes(9 << 20)]
        assert unfold(Codec.GZIP, b"".join(gzip.compress(part, mtime=0) for part in parts)) == b"".join(parts)


def test_gzip_stream_is_fed_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies what is left of a piece: with the whole rest at once, many members would take quadratic time."""
    sizes: list[int] = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, wbits: int) -> None:
            self._member = real(wbits=wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            sizes.append(len(data))
            return self._member.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    data = noise(100) * 10
    assert unfold(Codec.GZIP, gzip.compress(data, mtime=0) * 500) == data * 500
    assert max(sizes) <= 64 << 10


@pytest.mark.parametrize(("codec", "cut"), [(LZ4, lz4_linked_blocks), (SNAPPY, xerial_blocks)])
def test_stream_has_a_limited_number_of_blocks(codec, cut):
    data = bytes(5)
    for pieces in (5, 6):
        scratch = Scratch(16)
        end = decompress(codec, memoryview(cut(data, 1)), Output(scratch, 0, 100, pieces=pieces))
        assert bytes(scratch.view[:end]) == data
    with pytest.raises(DecompressesTooFar, match="more than 4 pieces"):
        decompress(codec, memoryview(cut(data, 1)), Output(Scratch(16), 0, 100, pieces=4))


@pytest.mark.parametrize("variant", [0, 1])
def test_bytes_after_the_last_gzip_member_are_ignored_as_in_java(variant: int) -> None:
    """GZIPInputStream takes whatever does not begin as a member does for the end of the stream."""
    for behind in (b"\0", bytes(100), b"garbage!", b"\x1f", b"\x1f\x8b\x07" + bytes(40)):
        assert unfold(Codec.GZIP, compressed(Codec.GZIP, TEXT, variant) + behind) == TEXT


def test_broken_second_gzip_member_is_an_error() -> None:
    with pytest.raises(CorruptBatch, match="gzip"):
        unfold(Codec.GZIP, gzip.compress(TEXT) + b"\x1f\x8b\x08\x00" + bytes(30))


@pytest.mark.parametrize("versions", [">ii", "<ii"])
def test_concatenated_xerial_streams_are_read_as_in_java(versions: str) -> None:
    """SnappyInputStream takes a header in the place of a block for the beginning of another stream."""
    first, second = xerial_blocks(TEXT, 100), xerial_blocks(TEXT[:50], 20)
    again = second[:8] + struct.pack(versions, 1, 1) + second[16:]
    assert unfold(Codec.SNAPPY, first + again + again + bytes(3)) == TEXT + 2 * TEXT[:50]


def test_xerial_headers_count_towards_the_block_limit() -> None:
    header = xerial_blocks(b"", 1)
    assert unfold(Codec.SNAPPY, header * 3 + xerial_blocks(TEXT, 100)) == TEXT
    with pytest.raises(DecompressesTooFar, match="more than 4 pieces"):
        decompress(Codec.SNAPPY, memoryview(header * 6), Output(Scratch(16), 0, 100, pieces=4))


def test_small_linked_lz4_block_allocates_little_and_copies_no_history(monkeypatch):
    asked, histories = [], []
    library = lz4.block.decompress

    def counted(source, uncompressed_size, dict=b""):
        asked.append(uncompressed_size)
        histories.append(type(dict))
        return library(source, uncompressed_size=uncompressed_size, dict=dict)

    monkeypatch.setattr(lz4.block, "decompress", counted)
    data = bytes(range(256)) * 300
    scratch = Scratch(16)
    end = decompress(LZ4, memoryview(lz4_linked_blocks(data, 100)), Output(scratch, 0, 1 << 20))
    assert bytes(scratch.view[:end]) == data
    assert max(asked) <= 255 * 110
    assert bytes not in histories


def test_zstd_context_is_released_after_a_large_batch():
    for size, kept in ((1 << 20, True), (5 << 20, False)):
        decompress(ZSTD, memoryview(zstandard.compress(bytes(size))), Output(Scratch(), 0, 64 << 20))
        assert (zstd_codec._decompressor.context is not None) == kept
