"""Offset and time index held against the batches that they speak of, a header table at a time. Values only.

An entry is true when it does what an index is for: reading on from its position finds its offset, and no record up to
its offset is later than its timestamp. Releases differ in which of several right answers they write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from kafkalog_spark.errors import CorruptBatch, CorruptIndex
from kafkalog_spark.format import layout, offset_index, time_index
from kafkalog_spark.format.batch_header import control_type
from kafkalog_spark.format.layout import MAX_INT32, NO_TIMESTAMP, ControlType, H
from kafkalog_spark.format.producer_snapshot import ProducerEntry
from kafkalog_spark.format.transaction_index import ENTRY_SIZE, AbortedTransaction
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import Table, Window
from kafkalog_spark.log.read.last_stable_offset import TransactionState


class _IndexCheck:
    """The entries of an index file, so many. faults: at once, those of the file by itself. padding: bytes of zeros that
    follow the entries and fill the file; 0 when there are none, or something else follows."""

    _kind: ClassVar[str]
    _entry_size: ClassVar[int]

    def __init__(self, data: bytes, entries: int, base_offset: int, check: Callable[[bytes, int], None]) -> None:
        self.entries = entries
        rest = data[entries * self._entry_size :]
        self.padding = len(rest) if rest and not any(rest) else 0
        self.faults: list[Fault] = []
        self._next = 0
        try:
            check(data[: len(data) - self.padding], base_offset)
        except CorruptIndex as error:
            self.faults.append(Fault(error.what, error.position))

    def _fault(self, entry: int, offset: int, expected: str, got: str) -> Fault:
        return Fault(f"entry {entry} of the {self._kind}", entry * self._entry_size, offset, expected, got)


class OffsetIndexCheck(_IndexCheck):
    """The entries of one .index."""

    _kind, _entry_size = "offset index", offset_index.ENTRY_SIZE

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._index = offset_index.parse_offset_index(data, base_offset)
        self._waiting: tuple[int, int] | None = None  # (slot, offset) of an entry for several batches
        super().__init__(data, len(self._index), base_offset, offset_index.check_offset_index)

    def take(self, table: Table, previous: int, begin: int) -> Iterator[Fault]:
        """Faults of entries that point into `table`, which begins at byte `begin` after `previous`; not into damage."""
        index, slot = self._index, self._next
        positions, last = table[:, H.POSITION], table[:, H.LAST_OFFSET]
        end = int(positions[-1] + table[-1, H.SIZE])
        slot = max(slot, int(np.searchsorted(index.positions, begin, side="left")))
        stop = int(np.searchsorted(index.positions, end, side="left"))
        yield from self._settle(last, index.positions[slot] if slot < len(index) else end, positions)
        for entry in range(slot, stop):
            position, offset = int(index.positions[entry]), int(index.offsets[entry])
            row = int(np.searchsorted(positions, position))
            if row == len(positions) or positions[row] != position:
                yield self._fault(entry, offset, "a position where a batch begins", f"byte {position}, inside a batch")
                continue
            before = int(last[row - 1]) if row else previous
            if table[row, H.COUNT] < 0:  # a wrapper, whose first offset is not in its header
                if not before < offset:
                    yield self._fault(entry, offset, f"an offset above {before} for byte {position}", str(offset))
                continue
            if offset < table[row, H.BASE_OFFSET]:
                yield self._fault(entry, offset, f"{int(last[row])} for byte {position}", str(offset))
            elif offset != last[row]:  # before Kafka 4.1, one entry for an append of several batches
                self._waiting = (entry, offset)
                limit = int(index.positions[entry + 1]) if entry + 1 < len(index) else end
                yield from self._settle(last[row:], limit, positions[row:])
        self._next = max(slot, stop)

    def _settle(self, last: np.ndarray, limit: int, positions: np.ndarray) -> Iterator[Fault]:
        """Look for the batch that ends with the waiting entry's offset, among those that begin before byte `limit`."""
        if self._waiting is None or not len(last):
            return
        entry, offset = self._waiting
        row = int(np.searchsorted(last, offset))
        if row < len(last):
            self._waiting = None
            if last[row] != offset or positions[row] >= limit:
                expected = f"the last offset of a batch at or after byte {int(self._index.positions[entry])}"
                yield self._fault(entry, offset, expected, f"offset {offset}")

    def lost(self) -> None:
        """Damage follows: the batch that an entry waits for may lie in it."""
        self._waiting = None

    def finish(self, end: int) -> Iterator[Fault]:
        """The log's good batches end at byte `end`: what points there or after it, points to nothing."""
        for entry in range(self._next, len(self._index)):
            position, offset = int(self._index.positions[entry]), int(self._index.offsets[entry])
            yield self._fault(entry, offset, f"a position below byte {end}, the end of the log", f"byte {position}")
        if self._waiting is not None:
            entry, offset = self._waiting
            yield self._fault(entry, offset, "the last offset of a batch", f"offset {offset}, past the last batch")


class TimeIndexCheck(_IndexCheck):
    """The entries of one .timeindex. largest: timestamp (ms) so far, of the batch that ends with largest_offset."""

    _kind, _entry_size = "time index", time_index.ENTRY_SIZE

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._index = time_index.parse_time_index(data, base_offset)
        self.largest = NO_TIMESTAMP
        self.largest_offset = base_offset
        super().__init__(data, len(self._index), base_offset, time_index.check_time_index)

    def take(self, table: Table) -> Iterator[Fault]:
        """Entries whose offset lies in the batches of `table`, which follow those seen before without a hole."""
        index = self._index
        last = table[:, H.LAST_OFFSET]
        running = np.maximum.accumulate(np.concatenate(([self.largest], table[:, H.MAX_TIMESTAMP])))[1:]
        stop = int(np.searchsorted(index.offsets, int(last[-1]), side="right"))
        rows = np.searchsorted(last, index.offsets[self._next : stop])
        for entry, row in enumerate(rows.tolist(), self._next):
            if index.timestamps[entry] != running[row]:
                expected = f"{int(running[row])}, the largest timestamp up to there"
                yield self._fault(entry, int(index.offsets[entry]), expected, str(index.timestamps[entry]))
        self._next = max(self._next, stop)
        if running[-1] > self.largest:
            self.largest = int(running[-1])
            self.largest_offset = int(last[int(np.argmax(running == self.largest))])

    def finish(self) -> Iterator[Fault]:
        """The segment was rolled: its last entry must tell its largest timestamp."""
        for entry in range(self._next, len(self._index)):
            offset = int(self._index.offsets[entry])
            yield self._fault(entry, offset, "an offset of the segment", f"offset {offset}, past its last batch")
        said = self._index.last
        if self.largest > 0 and (said is None or said.timestamp != self.largest):
            yield Fault(
                "the last entry of the time index of a segment that is not written to any more",
                max(len(self._index) - 1, 0) * time_index.ENTRY_SIZE,
                self.largest_offset,
                f"the largest timestamp {self.largest}",
                "no entry" if said is None else str(said.timestamp),
            )


# Sequence numbers of idempotent producers, and producer snapshots held against the log. Values only.


class LastBatch(NamedTuple):
    """A producer's last batch of records."""

    epoch: int
    last_sequence: int
    last_offset: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sequence {self.last_sequence}, offset {self.last_offset}"


class ProducerCheck:
    """The producers of one partition, from its first batch on.

    has_sequences: False for __consumer_offsets. The group coordinator gives each batch of a transaction's offsets
    sequence 0, and Kafka's ProducerAppendInfo does not check batches of coordinators.
    """

    def __init__(self, first_offset: int, *, has_sequences: bool = True) -> None:
        self.first_offset = first_offset
        self._has_sequences = has_sequences
        self._last_batches: dict[int, LastBatch] = {}

    def take(self, table: Table, *, has_gaps: bool) -> Iterator[Fault]:
        """The next batches. Sequences of a producer epoch follow each other, unless batches are missing (has_gaps)."""
        has_sequence = (table[:, H.PRODUCER_ID] >= 0) & (table[:, H.BASE_SEQUENCE] >= 0)  # markers have none
        rows = np.flatnonzero(has_sequence & ((table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) == 0))
        rows = rows[np.argsort(table[rows, H.PRODUCER_ID], kind="stable")]
        ids, epochs = table[rows, H.PRODUCER_ID], table[rows, H.PRODUCER_EPOCH]
        first = table[rows, H.BASE_SEQUENCE]
        last = (first + table[rows, H.LAST_OFFSET] - table[rows, H.BASE_OFFSET]) & MAX_INT32
        epochs_before, lasts_before = np.roll(epochs, 1), np.roll(last, 1)
        for begin in np.flatnonzero(np.diff(ids, prepend=-1)).tolist():
            before = self._last_batches.get(int(ids[begin]))
            epochs_before[begin], lasts_before[begin] = (-2, 0) if before is None else before[:2]
        if self._has_sequences and not has_gaps:
            expected = (lasts_before + 1) & MAX_INT32
            for at in np.flatnonzero((epochs_before == epochs) & (first != expected)).tolist():
                row = table[rows[at]]
                what = f"the sequence of producer id {int(row[H.PRODUCER_ID])}, epoch {int(row[H.PRODUCER_EPOCH])}"
                place = int(row[H.POSITION]), int(row[H.BASE_OFFSET])
                yield Fault(what, *place, str(int(expected[at])), str(int(row[H.BASE_SEQUENCE])))
        for end in np.flatnonzero(np.diff(ids, append=-1)).tolist():
            offset = int(table[rows[end], H.LAST_OFFSET])
            self._last_batches[int(ids[end])] = LastBatch(int(epochs[end]), int(last[end]), offset)

    def compare(self, entries: Sequence[ProducerEntry], *, has_gaps: bool) -> Iterator[Fault]:
        """A snapshot taken after the batches seen so far. A producer that is not in it has expired."""
        for entry in entries:
            last = self._last_batches.get(entry.producer_id)
            is_older = last is None or last.last_offset < entry.last_offset
            if entry.last_offset < self.first_offset or (has_gaps and is_older):
                continue  # its last batch was deleted or compacted away
            listed = LastBatch(entry.producer_epoch, entry.last_sequence, entry.last_offset)
            # A marker raises the epoch without a batch of records.
            if last is None or last[1:] != listed[1:] or last.epoch > listed.epoch:
                expected = "no batch" if last is None else str(last)
                yield Fault(
                    f"producer id {entry.producer_id}", offset=entry.last_offset, expected=expected, got=str(listed)
                )


# Transaction indexes held against the markers in the log. Values only.

_OF_TRANSACTIONS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


class TransactionCheck:
    """The transactions of one partition, from its first batch on. `begin_segment` for each, then its windows.
    open_transactions: producer id to first offset, at the first batch; None when nothing tells them."""

    def __init__(self, open_transactions: dict[int, int] | None) -> None:
        self._state = TransactionState(dict(open_transactions or {}))
        self._knows_all = open_transactions is not None
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}

    def begin_segment(self, entries: list[AbortedTransaction]) -> None:
        """Those of its .txnindex, empty when it has none."""
        self._entries = {entry.last_offset: (slot, entry) for slot, entry in enumerate(entries)}

    def take(self, window: Window, *, has_gaps: bool) -> Iterator[Fault]:
        """Aborted transactions of these batches that the index does not tell, or tells differently."""
        table = window.table
        for row in (table[:, H.ATTRIBUTES] & _OF_TRANSACTIONS).nonzero()[0].tolist():
            if table[row, H.MAGIC] < 2 or not table[row, H.COUNT]:
                continue
            header = window.header(row)
            if not header.is_control:
                self._state.data_batch(header)
                continue
            try:
                kind = control_type(window.batch(row))
            except CorruptBatch as error:
                yield Fault(error.what, header.position, header.base_offset)
                continue
            self._state.marker(header, kind)
            listed = self._entries.pop(header.base_offset, None)
            known = self._state.aborted.pop() if self._state.aborted else None
            if listed is not None:
                slot, entry = listed
                expected = _expected(entry, kind, header.producer_id, known, exact=self._knows_all and not has_gaps)
                if expected is not None:
                    yield _entry_fault(slot, entry, expected, _aborted_text(entry))
            elif known is not None:
                yield Fault(
                    f"the abort marker of producer id {known.producer_id} at offset {known.last_offset}",
                    offset=known.last_offset,
                    expected=f"an entry with first offset {known.first_offset}",
                    got="none",
                )

    def finish_segment(self) -> Iterator[Fault]:
        """Entries without a marker."""
        for slot, entry in self._entries.values():
            yield _entry_fault(slot, entry, "an abort marker at its last offset", "none in the segment")


def _entry_fault(slot: int, entry: AbortedTransaction, expected: str, got: str) -> Fault:
    return Fault(f"entry {slot} of the transaction index", slot * ENTRY_SIZE, entry.last_offset, expected, got)


def _expected(
    entry: AbortedTransaction, kind: int, producer_id: int, known: AbortedTransaction | None, *, exact: bool
) -> str | None:
    """The marker at an entry's last offset, where the entry says something else. exact: no batch is missing before."""
    if kind != ControlType.ABORT:
        return "no entry: the transaction was committed"
    if entry.producer_id != producer_id:
        return f"producer id {producer_id}"
    if known is not None and exact and entry != known:
        return _aborted_text(known)
    if known is not None and entry.first_offset > known.first_offset:
        return f"first offset {known.first_offset} or lower"
    return None


def _aborted_text(entry: AbortedTransaction) -> str:
    return (
        f"producer id {entry.producer_id}, first offset {entry.first_offset}, "
        f"last stable offset {entry.last_stable_offset}"
    )
