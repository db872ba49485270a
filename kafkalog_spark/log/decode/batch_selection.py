"""Selects the batches of a header table that can contain requested records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.kernels.batch_selection import SelectionRow, select_batches
from kafkalog_spark.kernels.rows import BatchColumn
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.scan_request import ScanRequest

_I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchSelection:
    """Batches to decode, in the order of the log.

    Attributes:
        table: The header table from which they were selected. The other arrays have an element for each batch.
        rows: int64[n], their rows in `table`.
        kinds: int64[n], a BatchKind.
        starts: int64[n], position in the payload at which the records begin.
        ends: int64[n], position at which they end.
        batches: int64[n, len(BatchColumn)], arguments of `decode_v2`.
    """

    table: _I64
    rows: _I64
    kinds: _I64
    starts: _I64
    ends: _I64
    batches: _I64

    @classmethod
    def of(cls, table: _I64, excluded: npt.NDArray[np.uint8], rows: RowBuffers, request: ScanRequest) -> BatchSelection:
        """Select the batches that can hold wanted records (`select_batches`).

        excluded: uint8[n], 1 for batches that a filter excludes (`BatchFilters`); empty if there is none.
        """
        count = len(table)
        selection = np.empty((len(SelectionRow), count), np.int64)
        batches = np.empty((count, len(BatchColumn)), np.int64)
        headers_suffice = rows.header_columns_only and not request.wanted
        kept_batches = select_batches(
            table, excluded, rows.limits, int(request.control_records), int(headers_suffice), int(rows.uses_timestamps),
            request.max_decompressed // layout.MIN_RECORD_SIZE, selection, batches,
        )  # fmt: skip
        rows_in_table, kinds, starts, ends = selection[:, :kept_batches]
        return cls(table, rows_in_table, kinds, starts, ends, batches[:kept_batches])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | np.ndarray) -> BatchSelection:
        """Return some of the batches. A slice shares the arrays; a mask, bool[n], copies them."""
        arrays = self.rows, self.kinds, self.starts, self.ends, self.batches
        return BatchSelection(self.table, *(array[index] for array in arrays))

    def blame(self, error: KafkalogError, i: int, position: int) -> KafkalogError:
        """Add position and offset of batch `i` to an error. position: that of the window in the file."""
        row = self.table[self.rows[i]]
        return error.at(position=position + int(row[HeaderColumn.POSITION]), offset=int(row[HeaderColumn.BASE_OFFSET]))
