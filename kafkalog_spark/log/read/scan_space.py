"""The memory that scans need: 10 to 20 MB of buffers, which the scans of many partitions use one after the other."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.log.format.layout import H
from kafkalog_spark.log.read.batch_contents import DECOMPRESSED
from kafkalog_spark.log.read.row_buffers import RowBuffers
from kafkalog_spark.log.read.scratch import Scratch

WINDOW = 2 << 20
"""Bytes read at once: what a window costs whatever it holds is then 2 % of its time, and CRC, decompression and
decoding still find its bytes in a cache."""
_TABLE_ROWS = 16 << 10  # of the smallest batches, a window holds about this many


class ScanSpace:
    """Buffers of one scan at a time. Who keeps a batch that a scan has given keeps the memory of its rows' buffers."""

    def __init__(self) -> None:
        self.window = Scratch(WINDOW)
        self.decompressed = Scratch(DECOMPRESSED)
        self.table = np.empty((_TABLE_ROWS, len(H)), np.int64)
        self._rows: tuple[object, RowBuffers] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, those of rows that wait to be filled again included."""
        rows = 0 if self._rows is None else self._rows[1].nbytes
        return int(self.window.data.nbytes + self.decompressed.data.nbytes + self.table.nbytes) + rows

    def rows(
        self,
        topic: str,
        partition: int,
        columns: tuple[str, ...],
        *,
        first_batch_rows: int,
        timestamp_from_ms: int,
        timestamp_until_ms: int,
        offset_in: tuple[int, ...],
        timestamp_in_ms: tuple[int, ...],
    ) -> RowBuffers:
        """Those of the scan before, emptied, when it asked for the same; new ones otherwise."""
        asked = (columns, timestamp_from_ms, timestamp_until_ms, offset_in, timestamp_in_ms)
        if self._rows is not None and self._rows[0] == asked:
            self._rows[1].begin_partition(topic, partition)
            return self._rows[1]
        rows = RowBuffers(
            columns,
            topic,
            partition,
            first_batch_rows=first_batch_rows,
            timestamp_from_ms=timestamp_from_ms,
            timestamp_until_ms=timestamp_until_ms,
            offset_in=offset_in,
            timestamp_in_ms=timestamp_in_ms,
        )
        self._rows = asked, rows
        return rows
