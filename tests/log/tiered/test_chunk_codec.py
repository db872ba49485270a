"""Chunks and indexes back to what they were, in the four modes, and damage."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kafkalog_spark.errors import CorruptChunk, KeyNotGiven
from kafkalog_spark.log.tiered import chunk_codec
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import Chunk
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import (
    INDEX_FIELDS,
    IndexRange,
    SegmentEncryption,
    SegmentManifest,
    parse_manifest,
)
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode, original_bytes, segment_objects
from tests.log.tiered.made_segments import segment

RING = KeyRing({KEY_ID: str(KEYS / "one.pem")})
LOG = b"".join(b"record %d of a log; " % number for number in range(500))
FILES = {
    RemoteFile.LOG: LOG,
    RemoteFile.OFFSET_INDEX: b"",  # of a segment with one batch
    RemoteFile.TIME_INDEX: bytes(range(24)),
    RemoteFile.PRODUCER_SNAPSHOT: b"\0\1\2\3",
    RemoteFile.LEADER_EPOCHS: b"0\n1\n0 0\n",
    RemoteFile.TRANSACTION_INDEX: bytes(34),
}
modes = pytest.mark.parametrize("mode", AivenMode)


def written(mode: AivenMode, chunk_size: int = 1000) -> tuple[SegmentManifest, dict[RemoteFile, bytes]]:
    _, objects = segment_objects(segment(0, 499), FILES, mode, chunk_size)
    return parse_manifest(objects[RemoteFile.MANIFEST]), objects


@modes
@pytest.mark.parametrize("chunk_size", [1, 7, 999, 1000, len(LOG) - 1, len(LOG), len(LOG) + 1])
def test_segment_round_trips_in_every_mode(mode: AivenMode, chunk_size: int) -> None:
    files = FILES if chunk_size > 1 else {**FILES, RemoteFile.LOG: LOG[:300]}
    _, objects = segment_objects(segment(0, 499), files, mode, chunk_size)
    manifest = parse_manifest(objects[RemoteFile.MANIFEST])
    codec = ChunkCodec.of(manifest, RING)
    log = files[RemoteFile.LOG]
    for begin, end in ((0, len(log)), (0, 1), (len(log) - 1, len(log)), (123, 123), (120, 290)):
        wanted = manifest.chunks.object_range(begin, end)
        stored = objects[RemoteFile.LOG][wanted.begin : wanted.end]
        assert original_bytes(codec, manifest.chunks, stored, begin, end) == log[begin:end]
    assert manifest.indexes is not None
    for file in INDEX_FIELDS:
        place = manifest.indexes[file]
        stored = objects[RemoteFile.INDEXES][place.position : place.position + place.size]
        assert codec.decode_index(stored, place) == files[file]


def test_plain_object_equals_the_segment() -> None:
    manifest, objects = written(AivenMode.PLAIN)
    assert objects[RemoteFile.LOG] == LOG
    assert manifest.is_plain


def test_encryption_is_aes_256_gcm_with_the_iv_in_front() -> None:
    """Two of the vectors that came with GCM (McGrew and Viega, test cases 14 and 16)."""
    plain_16 = (
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    cipher_16 = (
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    )
    key_16, aad_16 = 2 * "feffe9928665731c6d6a8f9467308308", "feedfacedeadbeeffeedfacedeadbeefabaddad2"
    vectors = [
        ("00" * 32, "00" * 12, "", "00" * 16, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"),
        (key_16, "cafebabefacedbaddecaf888", aad_16, plain_16, cipher_16, "76fc6ece0f4e1768cddf8853bb2d551b"),
    ]
    for vector in vectors:
        key, iv, aad, plain, cipher, tag = map(bytes.fromhex, vector)
        codec = ChunkCodec(False, AESGCM(key), SegmentEncryption("one", b"", aad))
        stored = iv + cipher + tag
        assert codec.decode_chunk(stored, Chunk(0, 0, len(plain), 0, len(stored))) == plain


def test_key_ring_must_have_the_key() -> None:
    manifest, _ = written(AivenMode.ENCRYPTED)
    with pytest.raises(KeyNotGiven, match=r"tiered\.encryption\.key\.one"):
        ChunkCodec.of(manifest, None)
    with pytest.raises(KeyNotGiven, match=r"tiered\.encryption\.key\.one"):
        ChunkCodec.of(manifest, KeyRing({"two": str(KEYS / "two.pem")}))
    plain, _ = written(AivenMode.ZSTD)
    assert ChunkCodec.of(plain, None).cipher is None


def test_codec_shows_neither_key_nor_aad() -> None:
    manifest, _ = written(AivenMode.ENCRYPTED)
    assert repr(ChunkCodec.of(manifest, RING)) == "ChunkCodec(is_compressed=False)"


@modes
def test_damage_names_object_chunk_and_position(mode: AivenMode) -> None:
    manifest, objects = written(mode)
    codec = ChunkCodec.of(manifest, RING)
    chunk = manifest.chunks.chunk(3)
    stored = objects[RemoteFile.LOG][chunk.position : chunk.position + chunk.size]
    with pytest.raises(
        CorruptChunk, match=rf"chunk 3: {chunk.size - 1} stored bytes, expected {chunk.size} by the manifest"
    ) as cut:
        codec.decode_chunk(stored[:-1], chunk, "prefix/key.log")
    assert (cut.value.path, cut.value.position) == ("prefix/key.log", chunk.position)
    if mode is AivenMode.PLAIN:  # nothing but the records' own CRC can tell
        assert codec.decode_chunk(bytes(chunk.size), chunk) == bytes(chunk.size)
        return
    expected = "authentication tag" if codec.cipher else "zstd"
    with pytest.raises(CorruptChunk, match=expected) as damaged:
        codec.decode_chunk(bytes(chunk.size), chunk, "prefix/key.log")
    assert (damaged.value.path, damaged.value.position) == ("prefix/key.log", chunk.position)
    if codec.encryption:
        for at in range(0, chunk.size, 97):
            flipped = stored[:at] + bytes([stored[at] ^ 0x10]) + stored[at + 1 :]
            with pytest.raises(CorruptChunk, match="chunk 3: its authentication tag does not match"):
                codec.decode_chunk(flipped, chunk)
        with pytest.raises(CorruptChunk, match="authentication tag"):
            replace(codec, encryption=replace(codec.encryption, aad=b"other")).decode_chunk(stored, chunk)


def test_swapped_chunk_is_detected_only_by_its_size() -> None:
    """All chunks have one AAD: the plugin does not bind them to their places. The records' CRCs and offsets do."""
    manifest, objects = written(AivenMode.ENCRYPTED)
    codec = ChunkCodec.of(manifest, RING)
    first, last = manifest.chunks.chunk(0), manifest.chunks.chunk(manifest.chunks.count - 1)
    stored = objects[RemoteFile.LOG][: first.size]
    assert codec.decode_chunk(stored, manifest.chunks.chunk(1)) == LOG[:1000]
    with pytest.raises(CorruptChunk, match="by the manifest"):
        codec.decode_chunk(stored, last)


def chunk_of(stored: bytes, original_size: int) -> Chunk:
    return Chunk(0, 0, original_size, 0, len(stored))


@pytest.mark.parametrize(
    ("stored", "size", "text"),
    [
        (zstandard.ZstdCompressor().compress(bytes(1 << 26)), 1000, "announces 67108864 bytes, expected 1000"),
        (zstandard.ZstdCompressor().compress(bytes(10)), 1000, "announces 10 bytes, expected 1000"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20)), 1000, "cannot be decompressed"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10)), 1000, "decoded to 10 bytes"),
        (zstandard.ZstdCompressor().compress(bytes(1000)) + b"\0", 1000, "cannot be decompressed"),
        (2 * zstandard.ZstdCompressor().compress(bytes(500)), 500, "cannot be decompressed"),
        (b"\x28\xb5\x2f\xfd", 1000, "cannot be decompressed"),
        (b"\x28", 1000, "cannot be decompressed"),
    ],
)
def test_zstd_frame_round_trips_within_its_size(stored: bytes, size: int, text: str) -> None:
    with pytest.raises(CorruptChunk, match=text):
        ChunkCodec(True).decode_chunk(stored, chunk_of(stored, size))


def test_frame_without_its_size_is_read() -> None:
    stored = zstandard.ZstdCompressor(write_content_size=False).compress(LOG)
    assert ChunkCodec(True).decode_chunk(memoryview(stored), chunk_of(stored, len(LOG))) == LOG


DATA = random.Random(1).randbytes(400_000) + bytes(900_000)
"""Needs several reads of the object, and skips more than is skipped at once."""


def part_of(stored: bytes, begin: int, end: int, size: int = len(DATA)) -> bytes:
    """Of a chunk that lies behind another one in its object."""
    chunk = Chunk(1, 10, size, 7, len(stored))
    return ChunkCodec(is_compressed=True).decode_chunk_part(
        lambda at, to: (bytes(7) + stored)[at:to], chunk, begin, end, "o.log"
    )


@pytest.mark.parametrize("begin", [0, 1, 262_143, 262_144, 262_145, 600_000, len(DATA) - 1])
@pytest.mark.parametrize("size", [1, 1000, len(DATA)])
def test_part_of_a_chunk_equals_its_bytes(begin: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_codec, "PART_READ", 100_000)
    end = min(begin + size, len(DATA))
    assert part_of(zstandard.compress(DATA), begin, end) == DATA[begin:end]


@pytest.mark.parametrize(
    ("stored", "size", "text"),
    [
        (zstandard.compress(DATA)[:-5], len(DATA), "chunk 1: .* bytes are missing at its end"),
        (zstandard.compress(DATA[:-9]), len(DATA), "chunk 1: 9 bytes are missing at its end"),
        (zstandard.compress(DATA + b"x"), len(DATA), f"more than the expected {len(DATA)} bytes"),
        (b"no frame", len(DATA), "chunk 1: cannot be decompressed"),
    ],
)
def test_part_up_to_the_end_of_a_damaged_chunk_is_an_error(stored: bytes, size: int, text: str) -> None:
    with pytest.raises(CorruptChunk, match=text) as caught:
        part_of(stored, 600_000, size)
    assert (caught.value.path, caught.value.position) == ("o.log", 7)


def test_too_few_encrypted_bytes_are_an_error() -> None:
    manifest, _ = written(AivenMode.ENCRYPTED)
    codec = ChunkCodec.of(manifest, RING)
    with pytest.raises(CorruptChunk, match="27 stored bytes, fewer than the 28 bytes"):
        codec.decode_chunk(bytes(27), chunk_of(bytes(27), 1))
    with pytest.raises(CorruptChunk, match="an index: 4 stored bytes, expected 40 by the manifest") as caught:
        codec.decode_index(bytes(4), IndexRange(7, 40), "key.indexes")
    assert (caught.value.path, caught.value.position) == ("key.indexes", 7)


def test_planning_loads_no_cryptography() -> None:
    program = (
        "import sys, pkgutil, importlib, kafkalog_spark.log.tiered as t\n"
        "for m in pkgutil.iter_modules(t.__path__): importlib.import_module(t.__name__ + '.' + m.name)\n"
        "print([n for n in ('cryptography', 'Crypto', 'numba', 'pyarrow') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.sub(r"\s", "", ran.stdout) == "[]"
