"""Compression and encryption of the chunks and indexes of a remote segment, compatible with Aiven's plugin.

A chunk is compressed to one zstd frame, then encrypted with AES-256-GCM, using the data key and the AAD of the segment
(AesEncryptionProvider). The result is the IV (12 bytes), the ciphertext and the tag (16 bytes). Indexes are never
compressed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zstandard

from kafkalog_spark.errors import CorruptChunk
from kafkalog_spark.log.tiered.chunks import Chunk
from kafkalog_spark.log.tiered.key_ring import DATA_KEY_SIZE, KeyRing, needs_extra
from kafkalog_spark.log.tiered.manifest import IndexRange, SegmentEncryption, SegmentManifest

IV_SIZE = 12
TAG_SIZE = 16
ENCRYPTION_OVERHEAD = IV_SIZE + TAG_SIZE  # bytes that encryption adds to each chunk and index

Buffer = bytes | bytearray | memoryview
FetchRange = Callable[[int, int], Buffer]  # returns bytes [begin, end) of an object


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Codec of the chunks and indexes of one segment; thread-safe.

    It contains the data key, so do not pickle or log it. Construct it where it is used, from manifest and key ring.
    """

    compressed: bool
    cipher: Any = field(default=None, repr=False)  # AESGCM; None without encryption
    encryption: SegmentEncryption | None = field(default=None, repr=False)

    @classmethod
    def of(cls, manifest: SegmentManifest, keys: KeyRing | None) -> ChunkCodec:
        """Return the codec for a segment with this manifest. Raises the errors of `KeyRing.data_key`."""
        encryption = manifest.encryption
        if encryption is None:
            return cls(manifest.compressed)
        return cls(manifest.compressed, _cipher((keys or KeyRing({})).data_key(encryption)), encryption)

    @classmethod
    def for_new_segment(cls, compressed: bool, keys: KeyRing, key_id: str | None) -> ChunkCodec:
        """Return a codec with a new data key and AAD, or one without encryption if `key_id` is None.

        Raises the errors of `KeyRing.wrapped`.
        """
        if key_id is None:
            return cls(compressed)
        data_key = os.urandom(DATA_KEY_SIZE)
        encryption = SegmentEncryption(key_id, keys.wrapped(key_id, data_key), os.urandom(_AAD_SIZE))
        return cls(compressed, _cipher(data_key), encryption)

    def transformed(self, chunk: bytes) -> bytes:
        """Return the stored form of a chunk."""
        if self.compressed:
            chunk = zstandard.ZstdCompressor(write_content_size=True).compress(chunk)
        return self.transformed_index(chunk)

    def transformed_index(self, data: bytes) -> bytes:
        """Return the stored form of an index, which is not compressed, and not encrypted if it is empty."""
        if self.encryption is None or not data:
            return data
        iv = os.urandom(IV_SIZE)
        sealed: bytes = self.cipher.encrypt(iv, data, self.encryption.aad)
        return iv + sealed

    def chunk(self, data: Buffer, chunk: Chunk, path: str | None = None) -> Buffer:
        """Return the original bytes of a chunk.

        Args:
            data: Stored bytes of the chunk.
            chunk: Position and sizes of the chunk.
            path: Key of the object, for errors.

        Raises:
            CorruptChunk: If `data` cannot be decrypted or decompressed to the original size.
        """
        try:
            data = self._decrypted(data, chunk.size)
            if self.compressed:
                data = _decompressed(data, chunk.original_size)
            if len(data) != chunk.original_size:
                raise CorruptChunk(f"{len(data)} bytes came out of it, {chunk.original_size} went in")
        except CorruptChunk as error:
            what = f"chunk {chunk.number}: {error.what}"
            raise CorruptChunk(what, path=path, position=chunk.position, hint=error.hint) from None
        return data

    @property
    def decodes_parts(self) -> bool:
        """True if `part` can be used: an encrypted chunk can only be authenticated as a whole."""
        return self.compressed and self.cipher is None

    def part(self, fetch: FetchRange, chunk: Chunk, begin: int, end: int, path: str) -> bytes:
        """Return the original bytes [begin, end) of a large chunk.

        The chunk is decoded piece by piece from its start, so neither the stored nor the original chunk is in memory as
        a whole. Requires `decodes_parts`.

        Args:
            fetch: Returns a byte range of the object.
            chunk: Position and sizes of the chunk.
            begin: First byte, relative to the start of the original chunk.
            end: End of the range.
            path: Key of the object, for errors.

        Raises:
            CorruptChunk: If the chunk cannot be decompressed up to `end`. Damage after `end` is not detected.
            OSError: If `fetch` raises it.
        """
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        what = f"chunk {chunk.number}: "
        try:
            source: Any = _ObjectReader(fetch, chunk)  # zstandard calls only `read`
            with context.stream_reader(source, read_size=PART_READ) as stream:
                skipped = bytearray(min(_SKIPPED_AT_ONCE, begin))
                for at in range(0, begin, _SKIPPED_AT_ONCE):
                    _skip(stream, memoryview(skipped)[: begin - at])
                part: bytes = stream.read(end - begin)
                if len(part) < end - begin:
                    raise CorruptChunk(f"{end - begin - len(part)} bytes are missing at its end", hint=_CUT)
                if end == chunk.original_size and stream.read(1):
                    raise CorruptChunk(f"more than the {chunk.original_size} bytes that went in came out of it")
        except CorruptChunk as error:
            raise CorruptChunk(what + error.what, path=path, position=chunk.position) from None
        except zstandard.ZstdError as error:
            reason = f"{what}cannot be decompressed (zstd): {error}"
            raise CorruptChunk(reason, path=path, position=chunk.position) from None
        return part

    def index(self, data: Buffer, index_range: IndexRange, path: str | None = None) -> Buffer:
        """Return the original bytes of an index.

        Args:
            data: Stored bytes of the index.
            index_range: Position of the index in the `.indexes` object.
            path: Key of the object, for errors.

        Raises:
            CorruptChunk: If `data` has the wrong size or cannot be decrypted.
        """
        try:
            return self._decrypted(data, index_range.size)
        except CorruptChunk as error:
            what = f"an index: {error.what}"
            raise CorruptChunk(what, path=path, position=index_range.position, hint=error.hint) from None

    def _decrypted(self, data: Buffer, size: int) -> Buffer:
        if len(data) != size:
            raise CorruptChunk(f"{len(data)} bytes, the manifest says {size}", hint=_CUT)
        if self.encryption is None or not size:  # an empty index is not encrypted
            return data
        if size < ENCRYPTION_OVERHEAD:
            raise CorruptChunk(f"{size} bytes, fewer than the {ENCRYPTION_OVERHEAD} that encryption adds")
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        try:
            plain: bytes = self.cipher.decrypt(view[:IV_SIZE], view[IV_SIZE:], self.encryption.aad)
        except InvalidTag:
            raise CorruptChunk("its authentication tag does not match", hint=_TAMPERED) from None
        return plain


class _ObjectReader:
    """File object over the stored bytes of a chunk."""

    def __init__(self, fetch: FetchRange, chunk: Chunk) -> None:
        self._fetch = fetch
        self._at, self._end = chunk.position, chunk.position + chunk.size

    def read(self, size: int) -> Buffer:
        begin, self._at = self._at, min(self._at + size, self._end)
        return self._fetch(begin, self._at) if begin < self._at else b""


def _skip(stream: Any, target: memoryview) -> None:
    while target:
        count = stream.readinto(target)
        if not count:
            raise CorruptChunk(f"{len(target)} bytes are missing at its end", hint=_CUT)
        target = target[count:]


def _cipher(data_key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise needs_extra("cryptography") from None
    return AESGCM(data_key)


_AAD_SIZE = 32  # bytes of random AAD, as in AesEncryptionProvider
_CUT = "the object was truncated or does not belong to this manifest"
_TAMPERED = "the object, its manifest's aad or the data key was changed or damaged after it was written"


def _decompressed(data: Buffer, expected: int) -> bytes:
    """Return the content of a zstd frame, allocating at most `expected` bytes for it."""
    try:
        # The library allocates the announced size, regardless of max_output_size.
        announced = zstandard.get_frame_parameters(data).content_size
        if announced not in (expected, zstandard.CONTENTSIZE_UNKNOWN):
            raise CorruptChunk(f"its zstd frame announces {announced} bytes, {expected} went in")
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        # One byte more, because 0 means no limit.
        return context.decompress(data, max_output_size=expected + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptChunk(f"cannot be decompressed (zstd): {error}") from None


PART_READ = 2 << 20  # bytes fetched at a time by `ChunkCodec.part`
_SKIPPED_AT_ONCE = 256 << 10
_MAX_WINDOW = 1 << 27  # largest zstd window in bytes; the default limit of zstd
