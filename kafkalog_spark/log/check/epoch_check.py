"""Checks leader-epoch-checkpoint: the order of its entries, and the leader epochs of the batches. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import HeaderTable


@dataclass(frozen=True, slots=True)
class EpochCheck:
    """Compares leader-epoch-checkpoint with the leader epochs of the batches at and above the log start offset."""

    entries: Sequence[EpochEntry]
    log_start_offset: int

    def check_order(self) -> Iterator[Fault]:
        """Yield a fault for each entry whose epoch does not increase, or whose start offset decreases."""
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield Fault(
                    f"the entry of epoch {after.epoch} is out of order",
                    offset=after.start_offset,
                    expected=f"above epoch {before.epoch}, from offset {before.start_offset} on",
                    got=f"epoch {after.epoch}, offset {after.start_offset}",
                )

    def check_batches(self, headers: HeaderTable) -> Iterator[Fault]:
        """Yield a fault for each batch whose leader epoch differs from the checkpoint's at its base offset.

        Entries out of order, which `check_order` has reported, are sorted by start offset.
        """
        epochs, base_offsets = headers[:, HeaderColumn.LEADER_EPOCH], headers[:, HeaderColumn.BASE_OFFSET]
        entries = sorted(self.entries, key=lambda entry: entry.start_offset)
        start_offsets = np.array([entry.start_offset for entry in entries], np.int64)
        entry_epochs = np.array([layout.NO_LEADER_EPOCH, *(entry.epoch for entry in entries)], np.int64)
        listed = entry_epochs[np.searchsorted(start_offsets, base_offsets, side="right")]
        differs = (epochs >= 0) & (base_offsets >= self.log_start_offset) & (listed != epochs)
        for row in np.flatnonzero(differs).tolist():
            yield Fault(
                f"the checkpoint's leader epoch for the batch at offset {int(base_offsets[row])}",
                offset=int(base_offsets[row]),
                expected=str(int(epochs[row])),
                got=str(int(listed[row])) if listed[row] >= 0 else "none",
            )
