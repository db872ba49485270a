"""Checks of batch headers: offsets, record counts, codecs and leader epochs. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format import layout
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import HeaderTable


@dataclass(slots=True)
class BatchCheck:
    """Check of the batch headers of one segment, in order.

    Attributes:
        base_offset: Base offset of the segment.
        next_base_offset: Base offset of the next segment; None for the last one.
        last_offset: Last offset of the previous batch, perhaps in the previous segment.
        leader_epoch: Largest leader epoch so far.
        has_gaps: True once offsets or records are missing between batches, as after compaction; never reset.
    """

    base_offset: int
    next_base_offset: int | None
    last_offset: int
    leader_epoch: int = layout.NO_LEADER_EPOCH
    has_gaps: bool = False

    def check_batches(self, headers: HeaderTable) -> Iterator[Fault]:
        """Check the next batches of the segment, given as header rows (at least one), and yield their faults."""
        yield from self._check_offsets(headers)
        yield from self._check_record_counts(headers)
        codecs = headers[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        for row in _rows_of(codecs > max(Codec)):
            yield _batch_fault(headers, row, "the codec of a batch", f"0 to {max(Codec)}", str(int(codecs[row])))
        yield from self._check_epochs(headers)
        self._advance(headers)

    def _check_offsets(self, headers: HeaderTable) -> Iterator[Fault]:
        base_offsets, last_offsets = headers[:, HeaderColumn.BASE_OFFSET], headers[:, HeaderColumn.LAST_OFFSET]
        lowest = np.maximum(self._previous_last_offsets(headers) + 1, self.base_offset)
        end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
        upper_bound_text = "" if self.next_base_offset is None else f" up to {end - 1}"
        for row in _rows_of((base_offsets < lowest) | (last_offsets < base_offsets) | (last_offsets >= end)):
            yield _batch_fault(
                headers, row, "the offsets of a batch", f"{int(lowest[row])} or higher{upper_bound_text}",
                f"{int(base_offsets[row])} to {int(last_offsets[row])}",
            )  # fmt: skip
        for row in _rows_of(last_offsets - self.base_offset > MAX_RELATIVE_OFFSET):
            yield _batch_fault(
                headers, row, "an offset that the index of its segment cannot hold",
                f"at most {self.base_offset + MAX_RELATIVE_OFFSET}", str(int(last_offsets[row])),
            )  # fmt: skip

    def _check_record_counts(self, headers: HeaderTable) -> Iterator[Fault]:
        counts, max_counts = headers[:, HeaderColumn.COUNT], _offset_counts(headers)
        for row in _rows_of(_is_v2(headers) & ((counts < 0) | (counts > max_counts))):
            yield _batch_fault(
                headers, row, "the record count of a batch", f"0 to {int(max_counts[row])}", str(int(counts[row]))
            )

    def _check_epochs(self, headers: HeaderTable) -> Iterator[Fault]:
        epochs = headers[:, HeaderColumn.LEADER_EPOCH]
        lowest = np.maximum.accumulate(np.concatenate(([self.leader_epoch], epochs)))[:-1]
        for row in _rows_of((epochs < layout.NO_LEADER_EPOCH) | ((epochs >= 0) & (epochs < lowest))):
            yield _batch_fault(
                headers, row, "the leader epoch of a batch", f"{int(lowest[row])} or higher", str(int(epochs[row]))
            )

    def _advance(self, headers: HeaderTable) -> None:
        """Update the attributes with checked batches."""
        is_after_gap = headers[:, HeaderColumn.BASE_OFFSET] != self._previous_last_offsets(headers) + 1
        lacks_records = _is_v2(headers) & (headers[:, HeaderColumn.COUNT] != _offset_counts(headers))
        self.has_gaps |= bool((is_after_gap | lacks_records).any())
        self.leader_epoch = max(self.leader_epoch, int(headers[:, HeaderColumn.LEADER_EPOCH].max()))
        self.last_offset = int(headers[-1, HeaderColumn.LAST_OFFSET])

    def _previous_last_offsets(self, headers: HeaderTable) -> npt.NDArray[np.int64]:
        """Return the last offset of the batch before each batch."""
        return np.concatenate(([self.last_offset], headers[:-1, HeaderColumn.LAST_OFFSET]))


def _is_v2(headers: HeaderTable) -> npt.NDArray[np.bool_]:
    is_v2: npt.NDArray[np.bool_] = headers[:, HeaderColumn.MAGIC] == 2
    return is_v2


def _offset_counts(headers: HeaderTable) -> npt.NDArray[np.int64]:
    """Return the number of offsets that each batch covers."""
    counts: npt.NDArray[np.int64] = headers[:, HeaderColumn.LAST_OFFSET] - headers[:, HeaderColumn.BASE_OFFSET] + 1
    return counts


def _rows_of(is_wrong: npt.NDArray[np.bool_]) -> list[int]:
    """Return the indices of the true values."""
    rows: list[int] = np.flatnonzero(is_wrong).tolist()
    return rows


def _batch_fault(headers: HeaderTable, row: int, what: str, expected: str, got: str) -> Fault:
    """Return a fault of the batch in `row`. what: name of the wrong value."""
    position, base_offset = int(headers[row, HeaderColumn.POSITION]), int(headers[row, HeaderColumn.BASE_OFFSET])
    return Fault(what, position, base_offset, expected, got)
