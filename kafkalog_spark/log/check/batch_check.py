"""Checks of batch headers: offsets, record counts, codecs and leader epochs. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import EpochEntry
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

    def take(self, table: HeaderTable) -> Iterator[Fault]:
        """Yield the faults of the next batches. `table` has at least one row."""
        base, last, count = (
            table[:, HeaderColumn.BASE_OFFSET],
            table[:, HeaderColumn.LAST_OFFSET],
            table[:, HeaderColumn.COUNT],
        )
        v2 = table[:, HeaderColumn.MAGIC] == 2
        previous = np.concatenate(([self.last_offset], last[:-1]))
        lowest = np.maximum(previous + 1, self.base_offset)
        end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
        for row in _rows_of((base < lowest) | (last < base) | (last >= end)):
            upto = "" if self.next_base_offset is None else f" up to {end - 1}"
            yield _batch_fault(
                table, row, "the offsets of a batch", f"{int(lowest[row])} or higher{upto}",
                f"{int(base[row])} to {int(last[row])}",
            )  # fmt: skip
        for row in _rows_of(last - self.base_offset > MAX_RELATIVE_OFFSET):
            yield _batch_fault(
                table, row, "an offset too far from the segment's base offset for an index",
                f"{self.base_offset + MAX_RELATIVE_OFFSET} at most", str(int(last[row])),
            )  # fmt: skip
        for row in _rows_of(v2 & ((count < 0) | (count > last - base + 1))):
            most = int(last[row] - base[row]) + 1
            yield _batch_fault(table, row, "the record count of a batch", f"0 to {most}", str(int(count[row])))
        codec = table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        for row in _rows_of(codec > max(Codec)):
            yield _batch_fault(table, row, "the codec of a batch", f"0 to {max(Codec)}", str(int(codec[row])))
        epochs = table[:, HeaderColumn.LEADER_EPOCH]
        highest = np.maximum.accumulate(np.concatenate(([self.leader_epoch], epochs)))
        for row in _rows_of((epochs < layout.NO_LEADER_EPOCH) | ((epochs >= 0) & (epochs < highest[:-1]))):
            yield _batch_fault(
                table, row, "the leader epoch of a batch", f"{int(highest[row])} or higher", str(int(epochs[row]))
            )
        self.leader_epoch = int(highest[-1])
        self.has_gaps |= bool(((base != previous + 1) | (v2 & (count != last - base + 1)))[1:].any())
        self.has_gaps |= bool(base[0] != self.last_offset + 1) or bool(v2[0] and count[0] != last[0] - base[0] + 1)
        self.last_offset = int(last[-1])


@dataclass(frozen=True, slots=True)
class EpochCheck:
    """Comparison of a leader-epoch-checkpoint with the batches from the log start offset on."""

    entries: Sequence[EpochEntry]
    log_start_offset: int

    def check_order(self) -> Iterator[Fault]:
        """Yield a fault for each entry whose epoch or start offset does not increase."""
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield Fault(
                    f"the entry of epoch {after.epoch} does not follow",
                    offset=after.start_offset,
                    expected=f"above epoch {before.epoch}, from offset {before.start_offset} on",
                    got=f"epoch {after.epoch}, offset {after.start_offset}",
                )

    def take(self, table: HeaderTable) -> Iterator[Fault]:
        """Yield a fault for each batch whose leader epoch differs from the checkpoint's at its base offset."""
        epochs, base = table[:, HeaderColumn.LEADER_EPOCH], table[:, HeaderColumn.BASE_OFFSET]
        starts = np.array([entry.start_offset for entry in self.entries], np.int64)
        by_entry = np.array([layout.NO_LEADER_EPOCH, *(entry.epoch for entry in self.entries)], np.int64)
        listed = by_entry[np.searchsorted(starts, base, side="right")]
        for row in _rows_of((epochs >= 0) & (base >= self.log_start_offset) & (listed != epochs)):
            yield Fault(
                f"the leader epoch at offset {int(base[row])}, whose batch was written in epoch {int(epochs[row])}",
                offset=int(base[row]),
                expected=str(int(epochs[row])),
                got=str(int(listed[row])) if listed[row] >= 0 else "none",
            )


def _rows_of(is_wrong: npt.NDArray[np.bool_]) -> list[int]:
    """Return the indices of the true values."""
    rows: list[int] = np.flatnonzero(is_wrong).tolist()
    return rows


def _batch_fault(table: HeaderTable, row: int, what: str, expected: str, got: str) -> Fault:
    return Fault(what, int(table[row, HeaderColumn.POSITION]), int(table[row, HeaderColumn.BASE_OFFSET]), expected, got)
