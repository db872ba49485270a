"""Transaction indexes held against the markers in the log. Values only."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.control_record import control_type
from kafkalog_spark.log.format.layout import ControlType, H
from kafkalog_spark.log.format.transaction_index import ENTRY_SIZE, AbortedTransaction
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.transactions import TransactionState

_OF_TRANSACTIONS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


class TransactionCheck:
    """The transactions of one partition, from its first batch on. `begin_segment` for each, then its windows."""

    def __init__(self, open_transactions: dict[int, int] | None = None) -> None:
        """open_transactions: producer id to first offset, at the first batch; None when nothing tells them."""
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
                exact = self._knows_all and not has_gaps
                yield from _compare(listed, kind, header.producer_id, known, exact=exact)
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
            yield Fault(
                f"entry {slot} of the transaction index",
                slot * ENTRY_SIZE,
                entry.last_offset,
                "an abort marker at its last offset",
                "none in the segment",
            )


def _compare(
    listed: tuple[int, AbortedTransaction],
    kind: int,
    producer_id: int,
    known: AbortedTransaction | None,
    *,
    exact: bool,
) -> Iterator[Fault]:
    """An entry and the marker at its last offset. exact: every batch before is in the log, so nothing may differ."""
    slot, entry = listed
    expected = None
    if kind != ControlType.ABORT:
        expected = "no entry: the transaction was committed"
    elif entry.producer_id != producer_id:
        expected = f"producer id {producer_id}"
    elif known is not None and exact and entry != known:
        expected = _text(known)
    elif known is not None and entry.first_offset > known.first_offset:
        expected = f"first offset {known.first_offset} or lower"
    if expected is not None:
        yield Fault(
            f"entry {slot} of the transaction index", slot * ENTRY_SIZE, entry.last_offset, expected, _text(entry)
        )


def _text(entry: AbortedTransaction) -> str:
    return (
        f"producer id {entry.producer_id}, first offset {entry.first_offset}, "
        f"last stable offset {entry.last_stable_offset}"
    )
