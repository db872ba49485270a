"""Transaction indexes compared with the markers in the log. Values only."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType, HeaderColumn
from kafkalog_spark.format.transaction_index import ENTRY_SIZE, AbortedTransaction
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.last_stable_offset import TransactionState
from kafkalog_spark.log.read.segment_file import Window

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
        for row in (table[:, HeaderColumn.ATTRIBUTES] & _OF_TRANSACTIONS).nonzero()[0].tolist():
            if table[row, HeaderColumn.MAGIC] < 2 or not table[row, HeaderColumn.COUNT]:
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
