"""Base offsets and leader epochs of finished batches, rewritten when the batches get their place in a log.

Tasks write batches without knowing their offsets. Base offset and leader epoch of a v2 batch lie outside its CRC, so
they are overwritten in place; nothing else changes. Index entries are made at the same time.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import (
    descriptor,
    replace_file,
)
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.write.segment_recovery import IndexBuilder
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES

# the first 16 bytes of a batch: base offset, length (as it was), leader epoch
_PLACE = struct.Struct(">qii")
# what the indexes need of a batch: length, magic, last offset delta, max timestamp
_FACTS = struct.Struct(">8xi4xb6xi8xq")
_AT_ONCE = 32 << 10  # batches whose index entries are made together


def restamp_segment(path: Path, base_offset: int, leader_epoch: int) -> int:
    """Number the records of the v2 batches in `path` from `base_offset` on, without gaps; returns the next offset.
    `path` ends in .log and may have any stem; the indexes get the same one, and are overwritten. Nothing is synced. It
    can be done again, to the same offsets or others: a crash in between does no harm. The file is mapped: nobody else
    may cut it meanwhile. Raises CorruptBatch for a file that does not consist of whole v2 batches, OSError."""
    stamper = PieceStamper(base_offset, leader_epoch)
    try:
        with descriptor(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as log:
            stamper.stamp_in_place(log)
    except CorruptBatch as error:
        raise error.at(path=str(path)) from None
    for suffix, data in zip((names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX), stamper.indexes(), strict=True):
        replace_file(path.with_suffix(suffix), data, sync=False)
    return stamper.next_offset


class PieceStamper:
    """Numbers the records of one segment's pieces, each of whole v2 batches. `next_offset`, `size`: after the last."""

    def __init__(self, base_offset: int, leader_epoch: int) -> None:
        self.next_offset = base_offset
        self.size = 0
        self._leader_epoch = leader_epoch
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)

    def stamp(self, piece: bytes | bytearray | memoryview) -> bytearray:
        """A copy of the piece with its place. Raises CorruptBatch, with a position in the piece."""
        data = bytearray(piece)
        self.stamp_in_place(data)
        return data

    def stamp_in_place(self, data: mmap.mmap | bytearray) -> None:
        batches = self._stamped(data)
        while facts := list(islice(batches, _AT_ONCE)):
            sizes, last_offsets, timestamps = np.array(facts, np.int64).T
            table = np.zeros((len(facts), len(HeaderColumn)), np.int64)
            table[:, HeaderColumn.POSITION] = self.size + np.cumsum(sizes) - sizes
            table[:, HeaderColumn.LAST_OFFSET] = last_offsets
            table[:, HeaderColumn.MAX_TIMESTAMP] = timestamps
            self._indexes.add(table)
            self.size += int(sizes.sum())

    def _stamped(self, data: mmap.mmap | bytearray) -> Iterator[tuple[int, int, int]]:
        """(bytes, last offset, largest timestamp in ms) of each batch, when its header is done."""
        position, end = 0, len(data)
        while position < end:
            left = end - position
            if left < layout.BATCH_OVERHEAD:
                raise CorruptBatch(f"{left} bytes are left, too few for a batch", position=position)
            length, magic, last_offset_delta, max_timestamp = _FACTS.unpack_from(data, position)
            if magic != 2:
                raise CorruptBatch(f"a batch of magic {magic} cannot be renumbered", position=position)
            size = length + layout.LOG_OVERHEAD
            if not layout.BATCH_OVERHEAD <= size <= left or last_offset_delta < 0:
                raise CorruptBatch(f"a batch of {size} bytes begins with {left} bytes left", position=position)
            _PLACE.pack_into(data, position, self.next_offset, length, self._leader_epoch)
            last_offset = self.next_offset + last_offset_delta
            position += size
            self.next_offset = last_offset + 1
            yield size, last_offset, max_timestamp

    def indexes(self) -> tuple[bytes, bytes]:
        """(.index, .timeindex) of the segment when it is closed. Once, after the last piece."""
        return self._indexes.finished()
