"""Checks of batch headers beyond their CRC, a table (layout.H) at a time. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.layout import Codec, H
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.segment_file import Table

Rows = npt.NDArray[np.bool_]


@dataclass(slots=True)
class BatchCheck:
    """The batches of one segment, in order. last_offset: of the batch before; leader_epoch: the largest so far.

    has_gaps: offsets or records are missing between batches, as compaction leaves it; from then on, for good.
    """

    base_offset: int
    next_base_offset: int | None
    last_offset: int
    leader_epoch: int = layout.NO_LEADER_EPOCH
    has_gaps: bool = False

    def take(self, table: Table) -> Iterator[Fault]:
        """The faults of the next batches; `table` has at least one row."""
        base, last, count = table[:, H.BASE_OFFSET], table[:, H.LAST_OFFSET], table[:, H.COUNT]
        v2 = table[:, H.MAGIC] == 2
        previous = np.concatenate(([self.last_offset], last[:-1]))
        lowest = np.maximum(previous + 1, self.base_offset)
        end = layout.MAX_INT64 if self.next_base_offset is None else self.next_base_offset
        for row in _where((base < lowest) | (last < base) | (last >= end)):
            upto = "" if self.next_base_offset is None else f" up to {end - 1}"
            yield _fault(
                table, row, "the offsets of a batch", f"{int(lowest[row])} or higher{upto}",
                f"{int(base[row])} to {int(last[row])}",
            )  # fmt: skip
        for row in _where(last - self.base_offset > MAX_RELATIVE_OFFSET):
            yield _fault(
                table, row, "an offset too far from the segment's base offset for an index",
                f"{self.base_offset + MAX_RELATIVE_OFFSET} at most", str(int(last[row])),
            )  # fmt: skip
        for row in _where(v2 & ((count < 0) | (count > last - base + 1))):
            most = int(last[row] - base[row]) + 1
            yield _fault(table, row, "the record count of a batch", f"0 to {most}", str(int(count[row])))
        codec = table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
        for row in _where(codec > max(Codec)):
            yield _fault(table, row, "the codec of a batch", f"0 to {max(Codec)}", str(int(codec[row])))
        yield from self._epochs(table)
        self.has_gaps |= bool(((base != previous + 1) | (v2 & (count != last - base + 1)))[1:].any())
        self.has_gaps |= bool(base[0] != self.last_offset + 1) or bool(v2[0] and count[0] != last[0] - base[0] + 1)
        self.last_offset = int(last[-1])

    def _epochs(self, table: Table) -> Iterator[Fault]:
        epochs = table[:, H.LEADER_EPOCH]
        highest = np.maximum.accumulate(np.concatenate(([self.leader_epoch], epochs)))
        for row in _where((epochs < layout.NO_LEADER_EPOCH) | ((epochs >= 0) & (epochs < highest[:-1]))):
            yield _fault(
                table, row, "the leader epoch of a batch", f"{int(highest[row])} or higher", str(int(epochs[row]))
            )
        self.leader_epoch = int(highest[-1])


@dataclass(frozen=True, slots=True)
class EpochCheck:
    """leader-epoch-checkpoint held against the batches from the log start offset on. `entries` rise in both columns."""

    entries: Sequence[EpochEntry]
    log_start_offset: int

    def order(self) -> Iterator[Fault]:
        """Entries that do not rise."""
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield Fault(
                    f"the entry of epoch {after.epoch} does not follow",
                    offset=after.start_offset,
                    expected=f"above epoch {before.epoch}, from offset {before.start_offset} on",
                    got=f"epoch {after.epoch}, offset {after.start_offset}",
                )

    def take(self, table: Table) -> Iterator[Fault]:
        """Batches whose leader epoch is another one than the checkpoint says for their offsets."""
        epochs, base = table[:, H.LEADER_EPOCH], table[:, H.BASE_OFFSET]
        starts = np.array([entry.start_offset for entry in self.entries], np.int64)
        known = np.array([layout.NO_LEADER_EPOCH, *(entry.epoch for entry in self.entries)], np.int64)
        said = known[np.searchsorted(starts, base, side="right")]
        for row in _where((epochs >= 0) & (base >= self.log_start_offset) & (said != epochs)):
            yield Fault(
                f"the leader epoch at offset {int(base[row])}, whose batch was written in epoch {int(epochs[row])}",
                offset=int(base[row]),
                expected=str(int(epochs[row])),
                got=str(int(said[row])) if said[row] >= 0 else "none",
            )


def _where(rows: Rows) -> list[int]:
    found: list[int] = np.flatnonzero(rows).tolist()
    return found


def _fault(table: Table, row: int, what: str, expected: str, got: str) -> Fault:
    return Fault(what, int(table[row, H.POSITION]), int(table[row, H.BASE_OFFSET]), expected, got)
