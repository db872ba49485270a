"""Checks the records in batches by decoding them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import Window


class RecordCheck:
    """Finds malformed records in batches with a valid CRC, with the decoder that reads use.

    Creating an instance loads Numba. Windows must be passed in the order of the log.
    """

    def __init__(self) -> None:
        from kafkalog_spark.log.codecs.scratch import Scratch
        from kafkalog_spark.log.decode.row_buffers import RowBuffers
        from kafkalog_spark.log.decode.scan_request import ScanRequest

        # The timestamp column is left out, because Kafka accepts timestamps that do not fit Spark's microseconds.
        self._request = ScanRequest(columns=("offset", "key", "value", "headers"), control_records=True)
        self._rows = RowBuffers("", 0, self._request)
        self._decompressed = Scratch(0)
        self._last_offset = -1

    def check_records(self, window: Window) -> Iterator[Fault]:
        """Yield a fault for each batch of the window that cannot be decoded."""
        from kafkalog_spark.log.codecs.scratch import Scratch
        from kafkalog_spark.log.decode.batch_selection import BatchSelection
        from kafkalog_spark.log.decode.run_decoder import RunDecoder

        table = window.table.copy()
        if not len(table):
            return
        table[:, HeaderColumn.POSITION] -= window.start
        table[0, HeaderColumn.PREVIOUS], table[1:, HeaderColumn.PREVIOUS] = (
            self._last_offset,
            table[:-1, HeaderColumn.LAST_OFFSET],
        )
        self._last_offset = int(table[-1, HeaderColumn.LAST_OFFSET])
        decoder = RunDecoder(self._rows, Scratch.of(window.data), self._decompressed, self._request)
        selection = BatchSelection.of(table, np.empty(0, np.uint8), self._rows, self._request)
        positions = table[selection.rows, HeaderColumn.POSITION] + window.start
        begin = 0
        while begin < len(selection):
            try:
                for _ in decoder.decode(selection[begin:], window.start):
                    pass
                begin = len(selection)
            except (CorruptBatch, UnsupportedFormat) as error:
                if error.position is None:
                    raise
                yield Fault(f"the records of a batch with a valid CRC: {error.what}", error.position, error.offset)
                begin = int(np.searchsorted(positions, error.position, side="right"))
            if self._rows.rows_filled:
                self._rows.take()
                self._rows.ensure_buffers()
