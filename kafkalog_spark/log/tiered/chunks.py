"""Where the chunks of a segment lie in its object (Aiven's plugin: manifest/index).

The segment is cut every `original_chunk_size` bytes, wherever that is in a batch; each chunk is transformed by itself
and the outcomes lie one after the other. So a range of the segment is one range of the object.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import zstandard

from kafkalog_spark.errors import CorruptManifest
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE

# Sizes of transformed chunks as Aiven's manifest keeps them (ChunkSizesBinaryCodec), zstd-compressed, in base64.
#
# Big-endian: count u4; none follow when it is 0, the one value u4 when it is 1, otherwise
#
#     base u4                     the smallest of all but the last
#     w u1                        bytes a value takes, 1 to 4
#     (count - 1) x w             values minus base, unsigned
#     last u4                     in full: the last chunk is as long as what is left

MAX_CHUNKS = 1 << 20
"""Chunks of one segment. A segment has at most 2 GiB and plugins are set to chunks of megabytes; a manifest that
announces more is damaged, and would make a table of gigabytes."""

_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">IIB")

Sizes = npt.NDArray[np.int64]


def decode_chunk_sizes(data: bytes) -> Sizes:
    """The sizes in bytes, int64 of shape (count,). Raises CorruptManifest."""
    if len(data) < 4:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, a count has 4")
    (count,) = _U32.unpack_from(data)
    expect_count(count)
    if count < 2:
        _expect_size(data, 4 + 4 * count, count)
        return np.array([_U32.unpack_from(data, 4)[0]] if count else [], np.int64)
    if len(data) < _HEAD.size:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, {count} chunks take more")
    _, base, width = _HEAD.unpack_from(data)
    if not 1 <= width <= 4:
        raise CorruptManifest(f"transformedChunks has {width} bytes a value, expected 1 to 4")
    _expect_size(data, _HEAD.size + (count - 1) * width + 4, count)
    digits = np.frombuffer(data, np.uint8, (count - 1) * width, _HEAD.size).reshape(count - 1, width)
    padded = np.zeros((count - 1, 8), np.uint8)
    padded[:, 8 - width :] = digits
    values = np.empty(count, np.int64)
    values[:-1] = padded.view(">i8")[:, 0] + base
    values[-1] = _U32.unpack_from(data, len(data) - 4)[0]
    return values


def chunk_sizes_from_text(text: str, expected: int) -> Sizes:
    """The sizes in a manifest's base64 text; no more is decompressed than `expected` take. Raises CorruptManifest."""
    expect_count(expected)
    most = _HEAD.size + 4 * expected + 4
    try:
        frame = base64.b64decode(text, validate=True)
        announced = zstandard.get_frame_parameters(frame).content_size
        if announced != zstandard.CONTENTSIZE_UNKNOWN and announced > most:  # the library would allocate that much
            raise CorruptManifest(f"transformedChunks decompresses to {announced} bytes, {most} at most are expected")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=most, allow_extra_data=False)
    except (binascii.Error, ValueError) as error:
        raise CorruptManifest(f"transformedChunks is not base64: {error}") from None
    except zstandard.ZstdError as error:
        raise CorruptManifest(f"transformedChunks cannot be decompressed (zstd): {error}") from None
    sizes = decode_chunk_sizes(data)
    if len(sizes) != expected:
        raise CorruptManifest(f"transformedChunks has {len(sizes)} chunks, the segment's size makes {expected}")
    return sizes


def encode_chunk_sizes(sizes: Sizes) -> bytes:
    """The bytes that `decode_chunk_sizes` reads, as the plugin writes them. Sizes: 0 to 2^31 - 1."""
    count = len(sizes)
    if count < 2:
        return _U32.pack(count) + b"".join(_U32.pack(int(size)) for size in sizes)
    base = int(sizes[:-1].min())
    rest = sizes[:-1] - base
    width = max(1, (int(rest.max()).bit_length() + 7) // 8)
    digits = rest.astype(">u8").view(np.uint8).reshape(count - 1, 8)[:, 8 - width :]
    return _HEAD.pack(count, base, width) + digits.tobytes() + _U32.pack(int(sizes[-1]))


def chunk_sizes_to_text(sizes: Sizes) -> str:
    return base64.b64encode(zstandard.ZstdCompressor().compress(encode_chunk_sizes(sizes))).decode("ascii")


def expect_count(count: int) -> None:
    """Raise CorruptManifest for more than MAX_CHUNKS."""
    if count > MAX_CHUNKS:
        raise CorruptManifest(f"the segment has {count} chunks, more than {MAX_CHUNKS} are taken for damage")


def _expect_size(data: bytes, size: int, count: int) -> None:
    if len(data) != size:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, its {count} chunks take {size}")


class Chunk(NamedTuple):
    """A chunk: its number from 0, its place and size in the segment, and those in the object. Bytes."""

    number: int
    original_position: int
    original_size: int
    position: int
    size: int


class ObjectRange(NamedTuple):
    """Byte range [begin, end) of an object that covers a range of the segment: these whole chunks."""

    begin: int
    end: int
    chunks: range


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """The chunks of one segment. positions: int64 of shape (chunks + 1,): where each transformed chunk begins in the
    object, and where the last one ends."""

    original_chunk_size: int
    original_file_size: int
    positions: npt.NDArray[np.int64]

    @classmethod
    def of_fixed(
        cls, original_chunk_size: int, original_file_size: int, transformed_size: int, final_transformed_size: int
    ) -> Self:
        """Chunks of one transformed size, but for the last. Raises CorruptManifest."""
        count = chunk_count(original_chunk_size, original_file_size)
        # one more than the most stands for all that is too large, also for an int64
        sizes = np.full(count, min(transformed_size, MAX_SEGMENT_SIZE + 1), np.int64)
        if count:
            sizes[-1] = min(final_transformed_size, MAX_SEGMENT_SIZE + 1)
        return cls.of_variable(original_chunk_size, original_file_size, sizes)

    @classmethod
    def of_variable(cls, original_chunk_size: int, original_file_size: int, sizes: Sizes) -> Self:
        """Chunks of these transformed sizes. Raises CorruptManifest."""
        count = chunk_count(original_chunk_size, original_file_size)
        if count != len(sizes):
            raise CorruptManifest(
                f"there are sizes of {len(sizes)} chunks, but {original_file_size} bytes in chunks of "
                f"{original_chunk_size} are {count}"
            )
        for size in (int(sizes.min()), int(sizes.max())) if len(sizes) else ():
            if not 1 <= size <= MAX_SEGMENT_SIZE:
                raise CorruptManifest(f"a transformed chunk has {size} bytes, expected 1 to 2^31-1")
        positions = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=positions[1:])
        positions.setflags(write=False)
        return cls(original_chunk_size, original_file_size, positions)

    @property
    def count(self) -> int:
        return len(self.positions) - 1

    @property
    def object_size(self) -> int:
        """Bytes of the object."""
        return int(self.positions[-1])

    @property
    def sizes(self) -> Sizes:
        """Transformed sizes in bytes."""
        return np.diff(self.positions)

    def chunk(self, number: int) -> Chunk:
        """Chunk `number`, from 0. Raises IndexError outside."""
        if not 0 <= number < self.count:
            raise IndexError(f"chunk {number} of {self.count}")
        begins = number * self.original_chunk_size
        size = min(self.original_chunk_size, self.original_file_size - begins)
        position = int(self.positions[number])
        return Chunk(number, begins, size, position, int(self.positions[number + 1]) - position)

    def range_of(self, begin: int, end: int) -> ObjectRange:
        """Object range that covers bytes [begin, end) of the segment; raises ValueError unless they are within it."""
        if not 0 <= begin <= end <= self.original_file_size:
            raise ValueError(f"bytes {begin} to {end} of a segment of {self.original_file_size}")
        if begin == end:
            return ObjectRange(0, 0, range(0))
        first, last = begin // self.original_chunk_size, (end - 1) // self.original_chunk_size
        return ObjectRange(int(self.positions[first]), int(self.positions[last + 1]), range(first, last + 1))

    def slices(self, begin: int, end: int) -> Iterator[tuple[Chunk, int, int]]:
        """The same range chunk by chunk, and which original bytes [begin, end) of each belong to it."""
        for number in self.range_of(begin, end).chunks:
            chunk = self.chunk(number)
            skip = chunk.original_position
            yield chunk, max(begin - skip, 0), min(end - skip, chunk.original_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkIndex) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    @property
    def _values(self) -> tuple[int, int, bytes]:
        return self.original_chunk_size, self.original_file_size, self.positions.tobytes()


def chunk_count(original_chunk_size: int, original_file_size: int) -> int:
    """How many chunks a segment of so many bytes makes. Raises CorruptManifest for sizes that no segment has."""
    if original_chunk_size < 1:
        raise CorruptManifest(f"originalChunkSize is {original_chunk_size}, expected at least 1 byte")
    if not 0 <= original_file_size <= MAX_SEGMENT_SIZE:
        raise CorruptManifest(f"originalFileSize is {original_file_size}, expected 0 to 2^31-1 bytes")
    count = -(-original_file_size // original_chunk_size)
    expect_count(count)
    return count
