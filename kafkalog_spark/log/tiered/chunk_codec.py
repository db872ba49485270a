"""Compression and encryption of the chunks and indexes of a remote segment, in the format of Aiven's plugin.

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
from kafkalog_spark.log.tiered.key_ring import DATA_KEY_SIZE, KeyRing, missing_package_error
from kafkalog_spark.log.tiered.manifest import IndexRange, SegmentEncryption, SegmentManifest

IV_SIZE = 12  # bytes
TAG_SIZE = 16  # bytes
ENCRYPTION_OVERHEAD = IV_SIZE + TAG_SIZE  # bytes that encryption adds to each chunk and index
PART_READ = 2 << 20  # bytes fetched at a time by `ChunkCodec.decode_chunk_part`
_SKIP_SIZE = 256 << 10  # bytes decompressed at a time before the start of a part
_MAX_WINDOW = 1 << 27  # largest zstd window in bytes; the default limit of zstd
_AAD_SIZE = 32  # bytes of random AAD, as in AesEncryptionProvider

_TRUNCATED = "the object was truncated or does not belong to this manifest"
_TAMPERED = "the object, its manifest's aad or the data key was changed or damaged after it was written"

Buffer = bytes | bytearray | memoryview
FetchRange = Callable[[int, int], Buffer]  # returns bytes [begin, end) of an object


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Codec of the chunks and indexes of one segment; thread-safe.

    It contains the data key, so never pickle or log it. Construct it from the manifest and the key ring in the process
    that uses it.

    Attributes:
        is_compressed: True if chunks are compressed.
        cipher: The AESGCM object; None without encryption.
        encryption: Parameters of the encryption; None without encryption.
    """

    is_compressed: bool
    cipher: Any = field(default=None, repr=False)
    encryption: SegmentEncryption | None = field(default=None, repr=False)

    @classmethod
    def of(cls, manifest: SegmentManifest, keys: KeyRing | None) -> ChunkCodec:
        """Return the codec of a stored segment. Raises the errors of `KeyRing.data_key`."""
        encryption = manifest.encryption
        if encryption is None:
            return cls(manifest.is_compressed)
        return cls(
            manifest.is_compressed, _create_cipher((keys or KeyRing({})).unwrap_data_key(encryption)), encryption
        )

    @classmethod
    def for_new_segment(cls, is_compressed: bool, keys: KeyRing, key_id: str | None) -> ChunkCodec:
        """Return a codec for a segment to upload, with a new data key and AAD if `key_id` is not None.

        Raises the errors of `KeyRing.wrap_data_key`.
        """
        if key_id is None:
            return cls(is_compressed)
        data_key = os.urandom(DATA_KEY_SIZE)
        encryption = SegmentEncryption(key_id, keys.wrap_data_key(key_id, data_key), os.urandom(_AAD_SIZE))
        return cls(is_compressed, _create_cipher(data_key), encryption)

    def encode_chunk(self, chunk: bytes) -> bytes:
        """Return the stored form of a chunk."""
        if self.is_compressed:
            chunk = zstandard.ZstdCompressor(write_content_size=True).compress(chunk)
        return self.encode_index(chunk)

    def encode_index(self, data: bytes) -> bytes:
        """Return the stored form of an index, which is not compressed, and not encrypted if it is empty."""
        if self.encryption is None or not data:
            return data
        iv = os.urandom(IV_SIZE)
        sealed: bytes = self.cipher.encrypt(iv, data, self.encryption.aad)
        return iv + sealed

    def decode_chunk(self, data: Buffer, chunk: Chunk, path: str | None = None) -> Buffer:
        """Return the original bytes of a chunk.

        Args:
            data: Stored bytes of the chunk.
            chunk: Position and sizes of the chunk.
            path: Key of the object, for errors.

        Raises:
            CorruptChunk: If `data` cannot be decrypted or decompressed to the original size.
        """
        try:
            data = self._decrypt(data, chunk.size)
            if self.is_compressed:
                data = _decompress(data, chunk.original_size)
            if len(data) != chunk.original_size:
                raise CorruptChunk(f"decoded to {len(data)} bytes, expected {chunk.original_size}")
        except CorruptChunk as error:
            what = f"chunk {chunk.number}: {error.what}"
            raise CorruptChunk(what, path=path, position=chunk.position, hint=error.hint) from None
        return data

    @property
    def can_decode_parts(self) -> bool:
        """True if `decode_chunk_part` can be used. An encrypted chunk can only be authenticated as a whole."""
        return self.is_compressed and self.cipher is None

    def decode_chunk_part(self, fetch: FetchRange, chunk: Chunk, begin: int, end: int, path: str) -> bytes:
        """Return the original bytes [begin, end) of a large chunk.

        The chunk is decoded piece by piece from its start, so the whole chunk is never in memory.
        Requires `can_decode_parts`.

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
            source: Any = _ChunkReader(fetch, chunk)  # zstandard calls only `read`
            with context.stream_reader(source, read_size=PART_READ) as stream:
                buffer = bytearray(min(_SKIP_SIZE, begin))
                for position in range(0, begin, _SKIP_SIZE):
                    _discard(stream, memoryview(buffer)[: begin - position])
                part: bytes = stream.read(end - begin)
                if len(part) < end - begin:
                    raise CorruptChunk(f"{end - begin - len(part)} bytes are missing at its end", hint=_TRUNCATED)
                if end == chunk.original_size and stream.read(1):
                    raise CorruptChunk(f"decoded to more than the expected {chunk.original_size} bytes")
        except CorruptChunk as error:
            raise CorruptChunk(what + error.what, path=path, position=chunk.position) from None
        except zstandard.ZstdError as error:
            reason = f"{what}cannot be decompressed (zstd): {error}"
            raise CorruptChunk(reason, path=path, position=chunk.position) from None
        return part

    def decode_index(self, data: Buffer, index_range: IndexRange, path: str | None = None) -> Buffer:
        """Return the original bytes of an index.

        Args:
            data: Stored bytes of the index.
            index_range: Position and stored size of the index in the `.indexes` object.
            path: Key of the object, for errors.

        Raises:
            CorruptChunk: If `data` has the wrong size or cannot be decrypted.
        """
        try:
            return self._decrypt(data, index_range.size)
        except CorruptChunk as error:
            what = f"an index: {error.what}"
            raise CorruptChunk(what, path=path, position=index_range.position, hint=error.hint) from None

    def _decrypt(self, data: Buffer, size: int) -> Buffer:
        if len(data) != size:
            raise CorruptChunk(f"{len(data)} stored bytes, expected {size} by the manifest", hint=_TRUNCATED)
        if self.encryption is None or not size:  # an empty index is not encrypted
            return data
        if size < ENCRYPTION_OVERHEAD:
            raise CorruptChunk(f"{size} stored bytes, fewer than the {ENCRYPTION_OVERHEAD} bytes of IV and tag")
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        try:
            plain: bytes = self.cipher.decrypt(view[:IV_SIZE], view[IV_SIZE:], self.encryption.aad)
        except InvalidTag:
            raise CorruptChunk("its authentication tag does not match", hint=_TAMPERED) from None
        return plain


def _create_cipher(data_key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise missing_package_error("cryptography") from None
    return AESGCM(data_key)


def _decompress(data: Buffer, expected: int) -> bytes:
    """Return the content of a zstd frame, allocating at most `expected` bytes for it."""
    try:
        # The library allocates the announced size, regardless of max_output_size.
        announced = zstandard.get_frame_parameters(data).content_size
        if announced not in (expected, zstandard.CONTENTSIZE_UNKNOWN):
            raise CorruptChunk(f"its zstd frame announces {announced} bytes, expected {expected}")
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        # The limit is one byte more than expected, because 0 means no limit.
        return context.decompress(data, max_output_size=expected + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptChunk(f"cannot be decompressed (zstd): {error}") from None


class _ChunkReader:
    """File object with the stored bytes of a chunk."""

    def __init__(self, fetch: FetchRange, chunk: Chunk) -> None:
        self._fetch = fetch
        self._position, self._end = chunk.position, chunk.position + chunk.size

    def read(self, size: int) -> Buffer:
        begin, self._position = self._position, min(self._position + size, self._end)
        return self._fetch(begin, self._position) if begin < self._position else b""


def _discard(stream: Any, target: memoryview) -> None:
    """Read and ignore as many bytes as `target` has. Raises CorruptChunk if the stream ends before."""
    while target:
        count = stream.readinto(target)
        if not count:
            raise CorruptChunk(f"{len(target)} bytes are missing at its end", hint=_TRUNCATED)
        target = target[count:]
