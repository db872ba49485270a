"""Checks the producers of a log, and the producer snapshots in its directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.check.finding import Fault, Findings
from kafkalog_spark.log.check.producer_check import ProducerCheck
from kafkalog_spark.log.read.header_windows import HeaderTable


class ProducerSnapshot(NamedTuple):
    """A producer snapshot: the producers of all batches below `offset`."""

    offset: int
    path: str
    entries: list[ProducerEntry]


@dataclass(slots=True)
class SnapshotCheck:
    """Checks producers, and compares each snapshot with them once all batches below its offset have been checked.

    Attributes:
        producers: Check of the producers' batches.
        snapshots: Snapshots that are not compared yet, in the order of their offsets.
        findings: Collects the faults of the snapshots.
        has_gaps: True if batches were missing before the last window, for example after compaction.
    """

    producers: ProducerCheck
    snapshots: list[ProducerSnapshot]
    findings: Findings
    has_gaps: bool = False

    def check_batches(self, table: HeaderTable, *, has_gaps: bool) -> Iterator[Fault]:
        """Yield the faults of the next batches; report those of the snapshots that end among them."""
        self.has_gaps = has_gaps
        rows_checked = 0
        while self.snapshots:
            below_snapshot = int((table[:, HeaderColumn.LAST_OFFSET] < self.snapshots[0].offset).sum())
            if below_snapshot == len(table):
                break  # later batches may be below its offset, too
            if below_snapshot > rows_checked:
                yield from self.producers.check_batches(table[rows_checked:below_snapshot], has_gaps=has_gaps)
                rows_checked = below_snapshot
            self._compare(self.snapshots.pop(0))
        if rows_checked < len(table):
            yield from self.producers.check_batches(table[rows_checked:], has_gaps=has_gaps)

    def finish(self, log_end_offset: int) -> list[ProducerSnapshot]:
        """Compare the remaining snapshots, after the last batch.

        Returns:
            Snapshots past the log end offset, which cannot be compared.
        """
        while self.snapshots and self.snapshots[0].offset <= log_end_offset:
            self._compare(self.snapshots.pop(0))
        return self.snapshots

    def _compare(self, snapshot: ProducerSnapshot) -> None:
        self.findings.add_errors(
            snapshot.path, self.producers.compare_snapshot(snapshot.entries, has_gaps=self.has_gaps)
        )
