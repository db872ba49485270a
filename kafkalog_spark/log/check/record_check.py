"""Check that the records of batches with a valid CRC can be read; the CRC only shows that nothing changed since."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.layout import H
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.decode.decompress import Scratch
from kafkalog_spark.log.decode.record_schema import ScanRequest
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.run_decoder import Chosen, RunDecoder
from kafkalog_spark.log.read.segment_file import Window

_REQUEST = ScanRequest(columns=("offset", "key", "value", "headers"), control_records=True)
"""Without timestamps: what does not fit Spark's microseconds is good in Kafka."""

_NONE_HIDDEN = np.empty(0, np.uint8)


class RecordCheck:
    """Decodes the batches of one segment, in order, as a reader does, and throws the rows away."""

    def __init__(self) -> None:
        self._rows = RowBuffers("", 0, _REQUEST)
        self._decompressed = Scratch(0)
        self._last_offset = -1

    def take(self, window: Window) -> Iterator[Fault]:
        """The batches of the window that cannot be read."""
        table = window.table.copy()
        if not len(table):
            return
        table[:, H.POSITION] -= window.start
        table[0, H.PREVIOUS], table[1:, H.PREVIOUS] = self._last_offset, table[:-1, H.LAST_OFFSET]
        self._last_offset = int(table[-1, H.LAST_OFFSET])
        decoder = RunDecoder(self._rows, Scratch.of(window.data), self._decompressed, _REQUEST)
        chosen = Chosen.of(table, _NONE_HIDDEN, self._rows, _REQUEST)
        positions = table[chosen.rows, H.POSITION] + window.start
        begin = 0
        while begin < len(chosen):
            try:
                for _ in decoder.decode(chosen.part(begin, len(chosen)), window.start):
                    pass
                begin = len(chosen)
            except (CorruptBatch, UnsupportedFormat) as error:
                if error.position is None:
                    raise
                yield Fault(f"the records of a batch with a valid CRC: {error.what}", error.position, error.offset)
                begin = int(np.searchsorted(positions, error.position, side="right"))
            if self._rows.rows_filled:
                self._rows.take()
                self._rows.ready()
