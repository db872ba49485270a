"""Buffers of a scan, which later scans reuse."""

from __future__ import annotations

import numpy as np

from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.decompressed_batches import DECOMPRESSED
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest

WINDOW = 2 << 20
"""Bytes read at once: large enough to make the fixed cost of a window small, and small enough to stay in a cache
(benchmark `decode`)."""
_TABLE_ROWS = 16 << 10  # about the number of the smallest batches in a window


class ScanBuffers:
    """Buffers of 10 to 20 MB for consecutive scans. An Arrow batch that the consumer keeps, keeps its row buffers."""

    def __init__(self) -> None:
        self.window = Scratch(WINDOW)
        self.decompressed = Scratch(DECOMPRESSED)
        self.table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
        self._rows: tuple[object, RowBuffers] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, including row buffers that are not in use at the moment."""
        rows = 0 if self._rows is None else self._rows[1].nbytes
        return int(self.window.data.nbytes + self.decompressed.data.nbytes + self.table.nbytes) + rows

    def rows(self, topic: str, partition: int, request: ScanRequest) -> RowBuffers:
        """Return the row buffers of the previous scan, emptied, if its request had the same columns and conditions.

        Otherwise return new ones.
        """
        key = (
            request.columns, request.timestamp_from_ms, request.timestamp_until_ms, request.offset_in,
            request.timestamp_in_ms,
        )  # fmt: skip
        if self._rows is not None and self._rows[0] == key:
            self._rows[1].begin_partition(topic, partition)
        else:
            self._rows = key, RowBuffers(topic, partition, request)
        return self._rows[1]
