"""Assignment of base offsets and a leader epoch to v2 batches that were written without them.

Spark tasks write batches before their offsets are known; the commit assigns them. The CRC of a v2 batch covers neither
the base offset nor the leader epoch, so both fields are overwritten in place and the CRC stays valid. The index entries
are built in the same pass.
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
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.write.index_builder import IndexBuilder, SegmentIndexes
from kafkalog_spark.log.write.segment_roll import INDEX_INTERVAL_BYTES

INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
"""Suffixes of the indexes of a segment, in the order of SegmentIndexes."""

# The first 16 bytes of a batch: base offset, length (written back unchanged), leader epoch.
_STAMPED_FIELDS = struct.Struct(">qii")
assert _STAMPED_FIELDS.size == layout.LEADER_EPOCH_AT + 4
# The header fields that stamping and the indexes need: length, magic, last offset delta, max timestamp.
_INDEXED_FIELDS = struct.Struct(">8xi4xb6xi8xq")
assert _INDEXED_FIELDS.size == layout.MAX_TIMESTAMP_AT + 8
_BATCHES_PER_TABLE = 32 << 10  # batches whose index entries are built with one call


def restamp_segment(path: Path, base_offset: int, leader_epoch: int) -> int:
    """Assign consecutive offsets and a leader epoch to the v2 batches of a .log file, and write its two indexes.

    Idempotent: after a crash, call it again, with the same offsets or with others. No file is synced. The .log is
    mapped into memory, so no other process may truncate it during the call.

    Args:
        path: The .log file, with any stem. Indexes of the same stem are overwritten.
        base_offset: Offset of the first record.
        leader_epoch: Leader epoch of every batch.

    Returns:
        The offset after the last record.

    Raises:
        CorruptBatch: If the file does not consist of whole v2 batches.
        OSError: If a file cannot be read or written.
    """
    stamper = PieceStamper(base_offset, leader_epoch)
    try:
        with descriptor(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as log:
            stamper.stamp_in_place(log)
    except CorruptBatch as error:
        raise error.at(path=str(path)) from None
    for suffix, data in zip(INDEX_SUFFIXES, stamper.build_indexes(), strict=True):
        replace_file(path.with_suffix(suffix), data, sync=False)
    return stamper.next_offset


class PieceStamper:
    """Writer of offsets and leader epoch into the batches of one segment, in pieces of whole v2 batches.

    It also builds the indexes of the segment.

    Attributes:
        next_offset: Offset after the last stamped record.
        size: Number of stamped bytes.
    """

    def __init__(self, base_offset: int, leader_epoch: int) -> None:
        self.next_offset = base_offset
        self.size = 0
        self._leader_epoch = leader_epoch
        self._indexes = IndexBuilder(base_offset, INDEX_INTERVAL_BYTES)

    def stamp(self, piece: bytes | bytearray | memoryview) -> bytearray:
        """Return a copy of `piece` with offsets and leader epoch in its batches.

        Raises:
            CorruptBatch: If the piece does not consist of whole v2 batches; with the byte position in the piece.
        """
        data = bytearray(piece)
        self.stamp_in_place(data)
        return data

    def stamp_in_place(self, data: mmap.mmap | bytearray) -> None:
        """Write offsets and leader epoch into the batches of `data`.

        Raises:
            CorruptBatch: If `data` does not consist of whole v2 batches; the batches before the bad one are stamped.
        """
        batches = self._stamp_batches(data)
        while rows := list(islice(batches, _BATCHES_PER_TABLE)):
            sizes, last_offsets, timestamps = np.array(rows, np.int64).T
            table = np.zeros((len(rows), len(HeaderColumn)), np.int64)
            table[:, HeaderColumn.POSITION] = self.size + np.cumsum(sizes) - sizes
            table[:, HeaderColumn.LAST_OFFSET] = last_offsets
            table[:, HeaderColumn.MAX_TIMESTAMP] = timestamps
            self._indexes.add(table)
            self.size += int(sizes.sum())

    def build_indexes(self) -> SegmentIndexes:
        """Return the indexes of the closed segment. Call once, after the last piece."""
        return self._indexes.build()

    def _stamp_batches(self, data: mmap.mmap | bytearray) -> Iterator[tuple[int, int, int]]:
        """Stamp each batch, then yield its size in bytes, its last offset and its largest timestamp in ms."""
        position, end = 0, len(data)
        while position < end:
            left = end - position
            if left < layout.BATCH_OVERHEAD:
                raise CorruptBatch(
                    f"{left} bytes remain, but a batch has at least {layout.BATCH_OVERHEAD} bytes", position=position
                )
            length, magic, last_offset_delta, max_timestamp = _INDEXED_FIELDS.unpack_from(data, position)
            if magic != 2:
                raise CorruptBatch(
                    f"a batch of magic {magic} cannot get other offsets, expected magic 2", position=position
                )
            size = length + layout.LOG_OVERHEAD
            if not layout.BATCH_OVERHEAD <= size <= left or last_offset_delta < 0:
                raise CorruptBatch(
                    f"invalid batch of {size} bytes with last offset delta {last_offset_delta}, {left} bytes remain",
                    position=position,
                )
            _STAMPED_FIELDS.pack_into(data, position, self.next_offset, length, self._leader_epoch)
            last_offset = self.next_offset + last_offset_delta
            position += size
            self.next_offset = last_offset + 1
            yield size, last_offset, max_timestamp
