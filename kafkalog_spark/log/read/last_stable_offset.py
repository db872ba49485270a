"""The last stable offset and the aborted transactions of a partition, found by walking batch headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType, HeaderColumn
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.batch_search import LogEnd, find_batch_behind, ordered_headers
from kafkalog_spark.log.read.partition_log import LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile

# Which records a read_committed reader does not see, decided from the log itself.
#
# A .txnindex says the same for less work, but a missing or truncated one looks like a log without aborts, and a
# wrong row is worse than a second look at the batch headers. Offsets of batches are enough: a producer's transaction
# begins with its first transactional batch and ends with the next control batch of that producer (KIP-98).


@dataclass
class TransactionState:
    """Transactions open at an offset (producer id -> first offset), those aborted before it. Feed batches in order."""

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def data_batch(self, header: BatchHeader) -> None:
        self.open.setdefault(header.producer_id, header.base_offset)

    def marker(self, header: BatchHeader, control_type: int) -> None:
        """A control batch; leader changes and the like end no transaction."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None and control_type == ControlType.ABORT:
            stable = min(self.open.values(), default=header.base_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, stable))

    def last_stable_offset(self, log_end_offset: int) -> int:
        """LSO: the first offset of the oldest open transaction, or the log end offset."""
        return min(self.open.values(), default=log_end_offset)


class AbortedRanges:
    """Aborted transactions as ranges of offsets per producer, to be asked for whole header tables."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for transaction in aborted:
            ranges = by_producer.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))
        # ranges of one producer do not overlap: sorted by their first offset they are sorted by their last
        self._ranges = {
            producer: np.array(sorted(ranges), np.int64).reshape(-1, 2) for producer, ranges in by_producer.items()
        }

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def hides(self, table: np.ndarray) -> np.ndarray:
        """bool[n]: which batches of a header table (layout.HeaderColumn) hold records of aborted transactions."""
        hidden = np.zeros(len(table), bool)
        mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
        data = (table[:, HeaderColumn.MAGIC] == 2) & (
            (table[:, HeaderColumn.ATTRIBUTES] & mask) == layout.ATTRIBUTE_TRANSACTIONAL
        )
        if not self._ranges or not data.any():
            return hidden
        for producer in np.unique(table[data, HeaderColumn.PRODUCER_ID]).tolist():
            ranges = self._ranges.get(producer)
            if ranges is None:
                continue
            rows = np.flatnonzero(data & (table[:, HeaderColumn.PRODUCER_ID] == producer))
            offsets = table[rows, HeaderColumn.BASE_OFFSET]
            slot = np.searchsorted(ranges[:, 0], offsets, side="right") - 1
            hidden[rows] = (slot >= 0) & (offsets <= ranges[np.maximum(slot, 0), 1])
        return hidden


_MARKER_SIZE = 128  # bytes. Transaction markers have 78.


def last_stable_offset(log: PartitionLog) -> int:
    """LSO: the first offset of the oldest transaction still open at the log's end, or the log end offset."""
    return StableOffsetWalk().last_stable_offset(log)


def open_transactions_at(log: PartitionLog, offset: int) -> dict[int, int]:
    """Return the transactions that are open at `offset` (producer id -> first offset).

    The newest good producer snapshot is read, and the batches from there to `offset`. Raises as StableOffsetWalk.
    """
    start, producers = log.latest_snapshot(offset) or (log.log_start_offset, [])
    state = TransactionState(open_transactions(producers))
    _walk(log, start, offset, state)
    return state.open


class StableOffsetWalk:
    """The LSO of a log at repeated looks: each goes on where the last one ended, if its batch is still there."""

    def __init__(self) -> None:
        self._state = TransactionState()
        self._reached: LogEnd | None = None

    def last_stable_offset(self, log: PartitionLog) -> int:
        end, reached = log.log_end, self._reached
        self._reached = None  # a walk that fails leaves half a state
        if reached is not None and log.still_holds(reached):
            start = reached.offset
        else:
            start, producers = log.latest_snapshot(end.offset) or (log.log_start_offset, [])
            self._state = TransactionState(open_transactions(producers))
        _walk(log, start, end.offset, self._state)
        self._state.aborted.clear()
        self._reached = end
        # Of a transaction that began before records were deleted, what is left is unstable.
        return max(self._state.last_stable_offset(end.offset), log.log_start_offset)


def aborted_transactions(
    log: PartitionLog, start: int, end: int, dropped: list[KafkalogError] | None = None
) -> TransactionState:
    """Transactions with records in [start, end) that were aborted; `open` holds those without a marker up to the LEO.

    Reads on past `end` only while transactions of the range are open. Remote segments' transaction indexes are asked
    instead of their batches. dropped: gets the damage after `end` that a log opened with pass_over_damage goes past: a
    scan of the range finds that inside it.
    """
    whole = TransactionState()
    for begin, until, find in log.indexed_runs(start, end):
        found = None if find is None else find()
        if found is None:
            state, reached = TransactionState(), until
            _walk(log, begin, until, state)
        else:
            state, reached = TransactionState(dict(found.open), found.aborted), found.reached
        concerned = set(state.open)
        if concerned:
            _walk(log, reached, log.log_end_offset, state, concerned, dropped)
        whole.aborted += state.aborted
        whole.open.update(state.open)
    return whole


def _walk(
    log: PartitionLog,
    start: int,
    end: int,
    state: TransactionState,
    waiting: set[int] | None = None,
    dropped: list[KafkalogError] | None = None,
) -> None:
    """Feed the transactional batches of [start, end) to `state`. With `waiting`, batches of other producers are passed
    over and the walk ends with the last of these transactions."""
    offset, tries = start, 0
    while offset < end and (waiting is None or waiting):
        file = log.open_segment_at(offset)
        if file is None:
            return
        try:
            with file:
                reached, error = _walk_segment(file, offset, end, state, waiting)
                position = 0
                while error is not None:
                    tries = tries + 1 if reached <= offset else 0
                    if tries < LISTINGS and log.has_changed(file):
                        break
                    if not file.pass_over_damage:
                        raise error
                    if dropped is not None:
                        dropped.append(error)
                    position = position if error.position is None else error.position
                    found = find_batch_behind(file, position, reached)
                    if found is None:
                        error = None
                    else:
                        position = found.position
                        reached, error = _walk_segment(file, offset, end, state, waiting, found)
        except FileNotFoundError as gone:
            tries += 1
            log.list_again(file, gone, tries)
            continue
        if error is not None:
            offset = max(offset, reached)
        elif file.next_base_offset is None:
            return
        else:
            offset = max(reached, file.next_base_offset)


def _walk_segment(
    file: SegmentFile,
    start: int,
    end: int,
    state: TransactionState,
    waiting: set[int] | None,
    begin: BatchHeader | None = None,
) -> tuple[int, KafkalogError | None]:
    """As _walk, in one segment from the batch `begin` on; returns the offset after the last batch seen, and the error
    that ended it early. Nothing is believed after the batch that reaches `end`, where a torn tail may begin."""
    position, offset = (file.locate(start), file.base_offset) if begin is None else (begin.position, begin.base_offset)
    if waiting is None:
        file.expect(position, end)
    try:
        for header in ordered_headers(file, position, offset):
            if header.base_offset >= end:
                return header.base_offset, None
            if header.last_offset >= start:
                _take(file, header, state, waiting)
            position, offset = header.end, header.last_offset + 1
            if offset >= end or (waiting is not None and not waiting):
                return offset, None
        if position < file.size:
            announced_batch(file.read, position, file.size, believed=file.size)
    except (CorruptLog, UnsupportedFormat) as error:
        return offset, file.blame(error.at(offset=offset))
    return offset, None


def _take(file: SegmentFile, header: BatchHeader, state: TransactionState, waiting: set[int] | None) -> None:
    """Let a batch change `state`, if it is transactional and not of a producer that nobody waits for. CRCs are checked
    of the batches that begin or end a transaction, and of those so small that they could be a marker with damaged
    attributes: the others change nothing."""
    if header.size <= _MARKER_SIZE or header.is_control:
        file.check_crc(header)
    if not header.is_transactional or (waiting is not None and header.producer_id not in waiting):
        return
    if not header.is_control:
        if header.producer_id not in state.open:
            file.check_crc(header)
            state.data_batch(header)
    elif header.record_count:
        state.marker(header, control_type(file.read(header.position, min(header.size, _MARKER_SIZE))))
        if waiting is not None:
            waiting.discard(header.producer_id)
