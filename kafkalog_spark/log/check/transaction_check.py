"""Compares transaction indexes with the transaction markers in the log. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType, HeaderColumn
from kafkalog_spark.format.transaction_index import ENTRY_SIZE, AbortedTransaction
from kafkalog_spark.log.check.finding import Fault
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.read.transaction_state import TransactionState

_TRANSACTION_FLAGS = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL


class TransactionCheck:
    """Checks the transactions of one partition, from its first batch on.

    For each segment, call `begin_segment`, then `check_batches` with each window, then `finish_segment`.

    Args:
        open_transactions: First offset by producer id of the transactions that are open before the first batch; None if
            they are unknown.
    """

    def __init__(self, open_transactions: dict[int, int] | None) -> None:
        self._state = TransactionState(dict(open_transactions or {}))
        self._knows_open_transactions = open_transactions is not None
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}

    def begin_segment(self, entries: list[AbortedTransaction]) -> None:
        """Begin a segment with the given entries of its .txnindex; empty if it has none."""
        self._entries = {entry.last_offset: (slot, entry) for slot, entry in enumerate(entries)}

    def check_batches(self, window: Window, *, has_gaps: bool) -> Iterator[Fault]:
        """Yield a fault for each abort marker in these batches whose index entry is missing or wrong."""
        table = window.table
        for row in (table[:, HeaderColumn.ATTRIBUTES] & _TRANSACTION_FLAGS).nonzero()[0].tolist():
            if table[row, HeaderColumn.MAGIC] < 2 or not table[row, HeaderColumn.COUNT]:
                continue
            header = window.header(row)
            if not header.is_control:
                self._state.add_data_batch(header)
                continue
            try:
                marker_type = control_type(window.batch(row))
            except CorruptBatch as error:
                yield Fault(error.what, header.position, header.base_offset)
                continue
            self._state.add_marker(header, marker_type)
            listed = self._entries.pop(header.base_offset, None)
            observed = self._state.aborted.pop() if self._state.aborted else None  # `add_marker` adds at most one
            if listed is not None:
                slot, entry = listed
                is_exact = self._knows_open_transactions and not has_gaps
                expected = _mismatch(entry, marker_type, header.producer_id, observed, is_exact=is_exact)
                if expected is not None:
                    yield _entry_fault(slot, entry, expected, _aborted_text(entry))
            elif observed is not None:
                yield Fault(
                    f"the abort marker of producer id {observed.producer_id} at offset {observed.last_offset}",
                    offset=observed.last_offset,
                    expected=f"an entry with first offset {observed.first_offset}",
                    got="none",
                )

    def finish_segment(self) -> Iterator[Fault]:
        """Yield a fault for each index entry whose marker is not in the segment."""
        for slot, entry in self._entries.values():
            yield _entry_fault(slot, entry, "an abort marker at its last offset", "none in the segment")


def _entry_fault(slot: int, entry: AbortedTransaction, expected: str, got: str) -> Fault:
    return Fault(f"entry {slot} of the transaction index", slot * ENTRY_SIZE, entry.last_offset, expected, got)


def _mismatch(
    entry: AbortedTransaction,
    marker_type: int,
    producer_id: int,
    observed: AbortedTransaction | None,
    *,
    is_exact: bool,
) -> str | None:
    """Compare an index entry with the marker at its last offset.

    Args:
        entry: The entry.
        marker_type: ControlType of the marker.
        producer_id: Producer of the marker.
        observed: The transaction according to the batches; None if its first batch was not read.
        is_exact: True if the first offset of `observed` is certain, because no batch before the marker is missing.

    Returns:
        Text of the expected content; None if the entry is correct.
    """
    if marker_type != ControlType.ABORT:
        return "no entry: the transaction was committed"
    if entry.producer_id != producer_id:
        return f"producer id {producer_id}"
    if observed is not None and is_exact and entry != observed:
        return _aborted_text(observed)
    if observed is not None and entry.first_offset > observed.first_offset:
        return f"first offset {observed.first_offset} or lower"
    return None


def _aborted_text(entry: AbortedTransaction) -> str:
    return (
        f"producer id {entry.producer_id}, first offset {entry.first_offset}, "
        f"last stable offset {entry.last_stable_offset}"
    )
