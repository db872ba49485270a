"""A segment that is made of pieces in memory, each of whole batches whose offsets are not given yet: offsets, leader
epoch, and both indexes, byte for byte those of segment_restamp."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.write.rolling import INDEX_INTERVAL_BYTES
from kafkalog_spark.log.write.segment_recovery import IndexBuilder
from kafkalog_spark.log.write.segment_restamp import stamped


class PieceStamper:
    """Numbers the records of one segment's pieces, one piece after the other. `next_offset`, `size`: after the last."""

    def __init__(
        self, base_offset: int, leader_epoch: int, *, index_interval_bytes: int = INDEX_INTERVAL_BYTES
    ) -> None:
        self.next_offset = base_offset
        self.size = 0
        self._leader_epoch = leader_epoch
        self._indexes = IndexBuilder(base_offset, index_interval_bytes)

    def stamp(self, piece: bytes | bytearray | memoryview) -> bytearray:
        """A copy of the piece with its place. Raises CorruptBatch, with a position in the piece."""
        data = bytearray(piece)
        batches = np.array(list(stamped(data, len(data), self.next_offset, self._leader_epoch)), np.int64)
        if not len(batches):
            return data
        sizes, last_offsets, timestamps = batches.T
        table = np.zeros((len(batches), len(H)), np.int64)
        table[:, H.POSITION] = self.size + np.cumsum(sizes) - sizes
        table[:, H.LAST_OFFSET] = last_offsets
        table[:, H.MAX_TIMESTAMP] = timestamps
        self._indexes.add(table)
        self.size += len(data)
        self.next_offset = int(last_offsets[-1]) + 1
        return data

    def indexes(self) -> tuple[bytes, bytes]:
        """(.index, .timeindex) of the segment when it is closed. Once, after the last piece."""
        return self._indexes.finished()
