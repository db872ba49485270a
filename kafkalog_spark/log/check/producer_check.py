"""Sequence numbers of idempotent producers, and producer snapshots held against the log. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import MAX_INT32, H
from kafkalog_spark.log.format.producer_snapshot import ProducerEntry
from kafkalog_spark.log.read.header_windows import Table


class LastBatch(NamedTuple):
    """A producer's last batch of records."""

    epoch: int
    last_sequence: int
    last_offset: int


class ProducerCheck:
    """The producers of one partition, from its first batch on."""

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self._known: dict[int, LastBatch] = {}

    def take(self, table: Table, *, has_gaps: bool) -> Iterator[Fault]:
        """The next batches. Sequences of a producer epoch follow each other, unless batches are missing (has_gaps)."""
        rows = _of_producers(table)
        ids, epochs = table[rows, H.PRODUCER_ID], table[rows, H.PRODUCER_EPOCH]
        first = table[rows, H.BASE_SEQUENCE]
        last = (first + table[rows, H.LAST_OFFSET] - table[rows, H.BASE_OFFSET]) & MAX_INT32
        order = np.argsort(ids, kind="stable")
        begins = np.flatnonzero(np.concatenate(([True], ids[order][1:] != ids[order][:-1]))) if len(order) else order
        if not has_gaps:
            follows = (last[order][:-1] + 1) & MAX_INT32
            same = (ids[order][1:] == ids[order][:-1]) & (epochs[order][1:] == epochs[order][:-1])
            for at in np.flatnonzero(same & (first[order][1:] != follows)).tolist():
                yield _sequence_fault(table[rows[order[at + 1]]], int(follows[at]))
        for slot, begin in enumerate(begins.tolist()):
            row = order[begin]
            known = self._known.get(int(ids[row]))
            if not has_gaps and known is not None and known.epoch == epochs[row]:
                expected = (known.last_sequence + 1) & MAX_INT32
                if first[row] != expected:
                    yield _sequence_fault(table[rows[row]], expected)
            end = begins[slot + 1] if slot + 1 < len(begins) else len(order)
            row = order[end - 1]
            self._known[int(ids[row])] = LastBatch(
                int(epochs[row]), int(last[row]), int(table[rows[row], H.LAST_OFFSET])
            )

    def compare(self, entries: Sequence[ProducerEntry], *, has_gaps: bool) -> Iterator[Fault]:
        """A snapshot taken after the batches seen so far. A producer that is not in it has expired."""
        for entry in entries:
            known = self._known.get(entry.producer_id)
            if entry.last_offset < self.first_offset or (has_gaps and _is_older(known, entry)):
                continue  # its last batch was deleted or compacted away
            said = LastBatch(entry.producer_epoch, entry.last_sequence, entry.last_offset)
            # A marker raises the epoch without a batch of records.
            same = known is not None and known[1:] == said[1:] and known.epoch <= said.epoch
            if not same:
                yield Fault(
                    f"producer id {entry.producer_id}",
                    offset=entry.last_offset,
                    expected="no batch" if known is None else _text(known),
                    got=_text(said),
                )


def _is_older(known: LastBatch | None, entry: ProducerEntry) -> bool:
    return known is None or known.last_offset < entry.last_offset


def _of_producers(table: Table) -> npt.NDArray[np.int64]:
    """Rows of idempotent and transactional producers' records; markers have no sequence."""
    wanted = (table[:, H.PRODUCER_ID] >= 0) & (table[:, H.BASE_SEQUENCE] >= 0)
    return np.flatnonzero(wanted & ((table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) == 0))


def _sequence_fault(row: npt.NDArray[np.int64], expected: int) -> Fault:
    return Fault(
        f"the sequence of producer id {int(row[H.PRODUCER_ID])}, epoch {int(row[H.PRODUCER_EPOCH])}",
        int(row[H.POSITION]),
        int(row[H.BASE_OFFSET]),
        str(expected),
        str(int(row[H.BASE_SEQUENCE])),
    )


def _text(batch: LastBatch) -> str:
    return f"epoch {batch.epoch}, sequence {batch.last_sequence}, offset {batch.last_offset}"
