"""Index from positions in a segment to chunks in its remote object (Aiven's plugin: manifest/index).

A segment is divided every `original_chunk_size` bytes, regardless of batches. Each chunk is compressed and encrypted
separately ("transformed"). The object contains the transformed chunks one after the other, so one range of the object
covers any range of the segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import CorruptManifest
from kafkalog_spark.format.layout import MAX_SEGMENT_SIZE
from kafkalog_spark.log.tiered.chunk_sizes import Sizes, check_count


class Chunk(NamedTuple):
    """Number of a chunk, from 0, and its position and size in bytes.

    Attributes:
        original_position, original_size: Those in the segment.
        position, size: Those in the object.
    """

    number: int
    original_position: int
    original_size: int
    position: int
    size: int


class ObjectRange(NamedTuple):
    """Byte range [begin, end) of an object that consists of whole chunks, and the numbers of these chunks."""

    begin: int
    end: int
    chunks: range


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Positions of the chunks of one segment, in the segment and in its object.

    Attributes:
        original_chunk_size: Size in bytes of each original chunk except the last.
        original_file_size: Size of the segment in bytes.
        positions: Start of each transformed chunk in the object, and the end of the last; int64 of shape (chunks + 1,).
    """

    original_chunk_size: int
    original_file_size: int
    positions: npt.NDArray[np.int64]

    @classmethod
    def of_fixed(
        cls, original_chunk_size: int, original_file_size: int, transformed_size: int, final_transformed_size: int
    ) -> Self:
        """Return the index of chunks with one transformed size, except for the last chunk. Raises CorruptManifest."""
        count = chunk_count(original_chunk_size, original_file_size)
        # Sizes above the limit are clipped to one that `of_variable` refuses, since they may not fit into an int64.
        sizes = np.full(count, min(transformed_size, MAX_SEGMENT_SIZE + 1), np.int64)
        if count:
            sizes[-1] = min(final_transformed_size, MAX_SEGMENT_SIZE + 1)
        return cls.of_variable(original_chunk_size, original_file_size, sizes)

    @classmethod
    def of_variable(cls, original_chunk_size: int, original_file_size: int, sizes: Sizes) -> Self:
        """Return the index of chunks with these transformed sizes. Raises CorruptManifest."""
        count = chunk_count(original_chunk_size, original_file_size)
        if count != len(sizes):
            raise CorruptManifest(
                f"the manifest lists {len(sizes)} chunks, expected {count} for {original_file_size} bytes in chunks of "
                f"{original_chunk_size}"
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
        """Number of chunks."""
        return len(self.positions) - 1

    @property
    def object_size(self) -> int:
        """Size of the object in bytes."""
        return int(self.positions[-1])

    @property
    def sizes(self) -> Sizes:
        """Transformed size of each chunk in bytes."""
        return np.diff(self.positions)

    def chunk(self, number: int) -> Chunk:
        """Return chunk `number`, from 0. Raises IndexError if there is no such chunk."""
        if not 0 <= number < self.count:
            raise IndexError(f"chunk {number} of {self.count}")
        original_position = number * self.original_chunk_size
        original_size = min(self.original_chunk_size, self.original_file_size - original_position)
        position = int(self.positions[number])
        return Chunk(number, original_position, original_size, position, int(self.positions[number + 1]) - position)

    def object_range(self, begin: int, end: int) -> ObjectRange:
        """Return the object range that covers bytes [begin, end) of the segment.

        Raises:
            ValueError: If the range is not within the segment.
        """
        if not 0 <= begin <= end <= self.original_file_size:
            raise ValueError(f"bytes {begin} to {end} of a segment of {self.original_file_size}")
        if begin == end:
            return ObjectRange(0, 0, range(0))
        first, last = begin // self.original_chunk_size, (end - 1) // self.original_chunk_size
        return ObjectRange(int(self.positions[first]), int(self.positions[last + 1]), range(first, last + 1))

    def slices(self, begin: int, end: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yield each chunk that overlaps bytes [begin, end) of the segment, with the overlap.

        Start and end of the overlap are relative to the start of the original chunk.
        """
        for number in self.object_range(begin, end).chunks:
            chunk = self.chunk(number)
            start = chunk.original_position
            yield chunk, max(begin - start, 0), min(end - start, chunk.original_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkIndex) and self._comparison_key == other._comparison_key

    def __hash__(self) -> int:
        return hash(self._comparison_key)

    @property
    def _comparison_key(self) -> tuple[int, int, bytes]:
        return self.original_chunk_size, self.original_file_size, self.positions.tobytes()


def chunk_count(original_chunk_size: int, original_file_size: int) -> int:
    """Return the number of chunks of a segment. Raises CorruptManifest if a size is out of range."""
    if original_chunk_size < 1:
        raise CorruptManifest(f"originalChunkSize is {original_chunk_size}, expected at least 1 byte")
    if not 0 <= original_file_size <= MAX_SEGMENT_SIZE:
        raise CorruptManifest(f"originalFileSize is {original_file_size}, expected 0 to 2^31-1 bytes")
    count = -(-original_file_size // original_chunk_size)
    check_count(count)
    return count
