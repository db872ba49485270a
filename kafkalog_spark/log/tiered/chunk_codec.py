"""Codec of chunks and indexes as the plugin transforms them: compress, then encrypt; and back.

Encrypted: IV (12 bytes), ciphertext, tag (16 bytes): AES-256-GCM with the segment's data key and AAD
(AesEncryptionProvider of Aiven's plugin). Compressed: one zstd frame. Indexes are never compressed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import zstandard

from kafkalog_spark.errors import CorruptChunk
from kafkalog_spark.log.tiered.chunks import Chunk
from kafkalog_spark.log.tiered.manifest import IndexRange, SegmentEncryption, SegmentManifest
from kafkalog_spark.log.tiered.tier_options import DATA_KEY_SIZE, KeyRing, needs_extra

IV_SIZE = 12
TAG_SIZE = 16
ENCRYPTION_OVERHEAD = IV_SIZE + TAG_SIZE  # bytes that encryption adds to each chunk and index

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """How the chunks of one segment are transformed. Threads may share it. Not to be pickled or printed: it has the
    key, so it is made where it is used, of the manifest and the key ring."""

    compressed: bool
    cipher: Any = field(default=None, repr=False)  # AESGCM; None without encryption
    aad: bytes = field(default=b"", repr=False)
    encryption: SegmentEncryption | None = field(default=None, repr=False)

    @classmethod
    def of(cls, manifest: SegmentManifest, keys: KeyRing | None) -> ChunkCodec:
        """Raises as KeyRing.data_key."""
        encryption = manifest.encryption
        if encryption is None:
            return cls(manifest.compressed)
        data_key = (keys or KeyRing({})).data_key(encryption)
        return cls(manifest.compressed, _cipher(data_key), encryption.aad, encryption)

    @classmethod
    def for_new_segment(cls, compressed: bool, keys: KeyRing, key_id: str | None) -> ChunkCodec:
        """With a data key and AAD of its own; plain without a `key_id`. Raises as KeyRing.wrapped."""
        if key_id is None:
            return cls(compressed)
        data_key, aad = os.urandom(DATA_KEY_SIZE), os.urandom(_AAD_SIZE)
        encryption = SegmentEncryption(key_id, keys.wrapped(key_id, data_key), aad)
        return cls(compressed, _cipher(data_key), aad, encryption)

    def transformed(self, chunk: bytes) -> bytes:
        """The chunk as it lies in the object."""
        if self.compressed:
            chunk = zstandard.ZstdCompressor(write_content_size=True).compress(chunk)
        return self.transformed_index(chunk)

    def transformed_index(self, data: bytes) -> bytes:
        """An index as it lies in the `.indexes` object: never compressed, and not encrypted where it is empty."""
        if self.cipher is None or not data:
            return data
        iv = os.urandom(IV_SIZE)
        sealed: bytes = self.cipher.encrypt(iv, data, self.aad)
        return iv + sealed

    def chunk(self, data: Buffer, chunk: Chunk, path: str | None = None) -> Buffer:
        """The original bytes of `chunk`, of which `data` lies in the object. Raises CorruptChunk with number, position,
        and `path`, the object's key."""
        what = f"chunk {chunk.number}"
        if len(data) != chunk.size:
            raise _corrupt(what, f"{len(data)} bytes, the manifest says {chunk.size}", path, chunk.position, _CUT)
        if self.cipher is not None:
            data = self._decrypt(data, what, path, chunk.position)
        if self.compressed:
            data = _decompress(data, chunk.original_size, what, path, chunk.position)
        if len(data) != chunk.original_size:
            wrong = f"{len(data)} bytes came out of it, {chunk.original_size} went in"
            raise _corrupt(what, wrong, path, chunk.position)
        return data

    def index(self, data: Buffer, place: IndexRange, path: str | None = None) -> Buffer:
        """The bytes of an index, of which `data` lies at `place` in the `.indexes` object. Raises CorruptChunk."""
        what = "an index"
        if len(data) != place.size:
            raise _corrupt(what, f"{len(data)} bytes, the manifest says {place.size}", path, place.position, _CUT)
        if self.cipher is None or not place.size:  # an empty one is not encrypted
            return data
        return self._decrypt(data, what, path, place.position)

    def _decrypt(self, data: Buffer, what: str, path: str | None, position: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        if len(data) < ENCRYPTION_OVERHEAD:
            wrong = f"{len(data)} bytes, fewer than the {ENCRYPTION_OVERHEAD} that encryption adds"
            raise _corrupt(what, wrong, path, position)
        view = memoryview(data)
        try:
            plain: bytes = self.cipher.decrypt(view[:IV_SIZE], view[IV_SIZE:], self.aad)
        except InvalidTag:
            raise _corrupt(what, "its authentication tag does not match", path, position, _TAMPERED) from None
        return plain


def _cipher(data_key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise needs_extra("cryptography") from None
    return AESGCM(data_key)


_AAD_SIZE = 32  # bytes, as the plugin draws them (AesEncryptionProvider)
_CUT = "the object was cut short or is not the one that the manifest is of"
_TAMPERED = "the object, its manifest's aad or the data key was changed or damaged after it was written"


def _decompress(data: Buffer, expected: int, what: str, path: str | None, position: int) -> bytes:
    """Decompress a zstd frame of `expected` bytes; no more than that is ever allocated."""
    try:
        # the library allocates what the frame announces, whatever it is allowed to give back
        announced = zstandard.get_frame_parameters(data).content_size
        if announced not in (expected, zstandard.CONTENTSIZE_UNKNOWN):
            wrong = f"its zstd frame announces {announced} bytes, {expected} went in"
            raise _corrupt(what, wrong, path, position)
        context = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        # one more: with 0 the library would take any size
        return context.decompress(data, max_output_size=expected + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _corrupt(what, f"cannot be decompressed (zstd): {error}", path, position) from None


_MAX_WINDOW = 1 << 27  # bytes; zstd's own limit. A frame that announces its size needs none.


def _corrupt(what: str, wrong: str, path: str | None, position: int, hint: str | None = None) -> CorruptChunk:
    return CorruptChunk(f"{what}: {wrong}", path=path, position=position, hint=hint)
