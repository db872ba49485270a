"""Codec of chunks and indexes as the plugin transforms them: compress, then encrypt; and back.

Encrypted: IV (12 bytes), ciphertext, tag (16 bytes): AES-256-GCM with the segment's data key and AAD
(AesEncryptionProvider of Aiven's plugin). Compressed: one zstd frame. Indexes are never compressed.
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
FetchRange = Callable[[int, int], Buffer]  # bytes [begin, end) of an object


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """How the chunks of one segment are transformed. Threads may share it. Not to be pickled or printed: it has the
    key, so it is made where it is used, of the manifest and the key ring."""

    compressed: bool
    cipher: Any = field(default=None, repr=False)  # AESGCM; None without encryption
    encryption: SegmentEncryption | None = field(default=None, repr=False)

    @classmethod
    def of(cls, manifest: SegmentManifest, keys: KeyRing | None) -> ChunkCodec:
        """Raises as KeyRing.data_key."""
        encryption = manifest.encryption
        if encryption is None:
            return cls(manifest.compressed)
        return cls(manifest.compressed, _cipher((keys or KeyRing({})).data_key(encryption)), encryption)

    @classmethod
    def for_new_segment(cls, compressed: bool, keys: KeyRing, key_id: str | None) -> ChunkCodec:
        """With a data key and AAD of its own; plain without a `key_id`. Raises as KeyRing.wrapped."""
        if key_id is None:
            return cls(compressed)
        data_key = os.urandom(DATA_KEY_SIZE)
        encryption = SegmentEncryption(key_id, keys.wrapped(key_id, data_key), os.urandom(_AAD_SIZE))
        return cls(compressed, _cipher(data_key), encryption)

    def transformed(self, chunk: bytes) -> bytes:
        """The chunk as it lies in the object."""
        if self.compressed:
            chunk = zstandard.ZstdCompressor(write_content_size=True).compress(chunk)
        return self.transformed_index(chunk)

    def transformed_index(self, data: bytes) -> bytes:
        """An index as it lies in the `.indexes` object: never compressed, and not encrypted where it is empty."""
        if self.encryption is None or not data:
            return data
        iv = os.urandom(IV_SIZE)
        sealed: bytes = self.cipher.encrypt(iv, data, self.encryption.aad)
        return iv + sealed

    def chunk(self, data: Buffer, chunk: Chunk, path: str | None = None) -> Buffer:
        """The original bytes of `chunk`, of which `data` lies in the object. Raises CorruptChunk with number, position,
        and `path`, the object's key."""
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
        """True if a part of a chunk can be read without the whole: an encrypted one is authenticated as a whole."""
        return self.compressed and self.cipher is None

    def part(self, fetch: FetchRange, chunk: Chunk, begin: int, end: int, path: str) -> bytes:
        """The original bytes [begin, end) of a large `chunk`, decoded from its start a piece at a time, so that neither
        the object's bytes nor the chunk are in memory as a whole. Requires `decodes_parts`.

        Args:
            fetch: gives a byte range of the object at `path`.

        Raises:
            CorruptChunk: As `chunk`; damage behind `end` is not noticed.
            OSError: If `fetch` raises it.
        """
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        what = f"chunk {chunk.number}: "
        try:
            source: Any = _ObjectReader(fetch, chunk)  # of a file, only `read` is called
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

    def index(self, data: Buffer, place: IndexRange, path: str | None = None) -> Buffer:
        """The bytes of an index, of which `data` lies at `place` in the `.indexes` object. Raises CorruptChunk."""
        try:
            return self._decrypted(data, place.size)
        except CorruptChunk as error:
            what = f"an index: {error.what}"
            raise CorruptChunk(what, path=path, position=place.position, hint=error.hint) from None

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
    """The stored bytes of a chunk, as a file."""

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


_AAD_SIZE = 32  # bytes, as the plugin draws them (AesEncryptionProvider)
_CUT = "the object was cut short or is not the one that the manifest is of"
_TAMPERED = "the object, its manifest's aad or the data key was changed or damaged after it was written"


def _decompressed(data: Buffer, expected: int) -> bytes:
    """Content of a zstd frame of `expected` bytes; no more than that is ever allocated."""
    try:
        # the library allocates what the frame announces, whatever it is allowed to give back
        announced = zstandard.get_frame_parameters(data).content_size
        if announced not in (expected, zstandard.CONTENTSIZE_UNKNOWN):
            raise CorruptChunk(f"its zstd frame announces {announced} bytes, {expected} went in")
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        # one more: with 0 the library would take any size
        return context.decompress(data, max_output_size=expected + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptChunk(f"cannot be decompressed (zstd): {error}") from None


PART_READ = 2 << 20  # bytes of an object that are fetched at a time where chunks are decoded in parts
_SKIPPED_AT_ONCE = 256 << 10
_MAX_WINDOW = 1 << 27  # bytes; zstd's own limit. A frame that announces its size and is decoded at once needs none.
