"""The last stable offset and the aborted transactions of a partition, found by walking batch headers.

A .txnindex has the same information. But if it is missing or truncated, the log seems to have no aborts, and returning
an aborted record is worse than the cost of walking the headers. The headers suffice: a producer's transaction begins
with its first transactional batch and ends with its next control batch (KIP-98).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, read_batch_header
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.batch_order import ordered_headers
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate


@dataclass
class TransactionState:
    """Transactions that are open at an offset, and those that were aborted before it. Batches are added in order.

    Attributes:
        open: First offset by producer ID.
        aborted: Aborted transactions, in the order of their markers.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def add_data_batch(self, header: BatchHeader) -> None:
        """Add a transactional batch of records."""
        self.open.setdefault(header.producer_id, header.base_offset)

    def add_marker(self, header: BatchHeader, control_type: int) -> None:
        """Add a control batch. Only commit and abort markers end a transaction; leader changes, for example, do not."""
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return
        first = self.open.pop(header.producer_id, None)
        if first is not None and control_type == ControlType.ABORT:
            stable = min(self.open.values(), default=header.base_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, stable))

    def last_stable_offset(self, log_end_offset: int) -> int:
        """Return the LSO: the first offset of the oldest open transaction, or the log end offset."""
        return min(self.open.values(), default=log_end_offset)


_MARKER_SIZE = 128  # bytes; the largest size of a batch that may be a transaction marker, which has 78


def last_stable_offset(log: PartitionLog) -> int:
    """Return the LSO: the first offset of the oldest transaction open at the log's end, or the log end offset."""
    return StableOffsetWalk().last_stable_offset(log)


def open_transactions_at(log: PartitionLog, offset: int) -> dict[int, int]:
    """Return the transactions that are open at `offset` (producer ID -> first offset).

    Reads the newest good producer snapshot, and the batches from there to `offset`.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
    """
    start, producers = log.latest_snapshot(offset) or (log.log_start_offset, [])
    state = TransactionState(open_transactions(producers))
    _walk(log, start, offset, state)
    return state.open


class StableOffsetWalk:
    """Finds the LSO of a growing log repeatedly.

    Each walk resumes where the previous one ended, if the log was not truncated there.
    """

    def __init__(self) -> None:
        self._state = TransactionState()
        self._reached: LogEnd | None = None

    def last_stable_offset(self, log: PartitionLog) -> int:
        """Return the current LSO. Raises as `open_transactions_at`."""
        end, reached = log.log_end, self._reached
        self._reached = None  # a walk that fails leaves an incomplete state
        if reached is not None and log.is_end_unchanged(reached):
            start = reached.offset
        else:
            start, producers = log.latest_snapshot(end.offset) or (log.log_start_offset, [])
            self._state = TransactionState(open_transactions(producers))
        _walk(log, start, end.offset, self._state)
        self._state.aborted.clear()
        self._reached = end
        # A transaction may have begun in records that were deleted since. Its remaining records are not stable.
        return max(self._state.last_stable_offset(end.offset), log.log_start_offset)


def aborted_transactions(
    log: PartitionLog, start: int, end: int, dropped: list[KafkalogError] | None = None
) -> TransactionState:
    """Return the aborted transactions that have records in [start, end).

    In the result, `open` has those without a marker up to the log end. Batches after `end` are read only while
    transactions of the range are open. Of remote segments, complete transaction indexes are used.

    Args:
        log: The partition.
        start: First offset.
        end: End of the range.
        dropped: List to which errors of damage after `end` are added, if the log was opened with pass_over_damage. The
            scan of the range itself finds the damage in it.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
    """
    total = TransactionState()
    for begin, until, find_aborts in log.indexed_runs(start, end):
        indexed = None if find_aborts is None else find_aborts()
        if indexed is None:
            state, reached = TransactionState(), until
            _walk(log, begin, until, state)
        else:
            state, reached = TransactionState(dict(indexed.open), indexed.aborted), indexed.reached
        unfinished = set(state.open)
        if unfinished:
            _walk(log, reached, log.log_end_offset, state, unfinished, dropped)
        total.aborted += state.aborted
        total.open.update(state.open)
    return total


def _walk(
    log: PartitionLog,
    start: int,
    end: int,
    state: TransactionState,
    unfinished: set[int] | None = None,
    dropped: list[KafkalogError] | None = None,
) -> None:
    """Add the transactional batches of [start, end) to `state`.

    Args:
        log: The partition.
        start: First offset.
        end: End of the range.
        state: Transactions at `start`; updated.
        unfinished: Producer IDs of open transactions. If it is given, batches of other producers are ignored, IDs are
            removed at the end of their transactions, and the walk stops when the set is empty.
        dropped: See `aborted_transactions`.
    """
    offset, tries = start, 0
    while offset < end and (unfinished is None or unfinished):
        file = log.open_segment_at(offset)
        if file is None:
            return
        try:
            with file:
                reached, error = _walk_segment(file, offset, end, state, unfinished)
                position = 0
                while error is not None:
                    tries = tries + 1 if reached <= offset else 0
                    if tries < MAX_LISTINGS and log.refresh_and_compare(file):
                        break
                    if not file.pass_over_damage:
                        raise error
                    if dropped is not None:
                        dropped.append(error)
                    position = position if error.position is None else error.position
                    next_batch = find_next_batch(file, position, reached)
                    if next_batch is None:
                        error = None
                    else:
                        position = next_batch.position
                        reached, error = _walk_segment(file, offset, end, state, unfinished, next_batch)
        except FileNotFoundError as gone:
            tries += 1
            log.refresh_after_replacement(file, gone, tries)
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
    unfinished: set[int] | None,
    begin: BatchHeader | None = None,
) -> tuple[int, KafkalogError | None]:
    """Walk one segment, from the batch `begin` on if it is given.

    Batches after the one that reaches `end` are not read, since a torn tail may begin there.

    Returns:
        The offset after the last batch, and the error that stopped the walk early, or None.
    """
    position, offset = (locate(file, start), file.base_offset) if begin is None else (begin.position, begin.base_offset)
    if unfinished is None:
        file.expect(position, end)
    try:
        for header in ordered_headers(file, position, offset):
            if header.base_offset >= end:
                return header.base_offset, None
            if header.last_offset >= start:
                _add_batch(file, header, state, unfinished)
            position, offset = header.end, header.last_offset + 1
            if offset >= end or (unfinished is not None and not unfinished):
                return offset, None
        if position < file.size:
            read_batch_header(file.read, position, file.size, max_unchecked=file.size)
    except (CorruptLog, UnsupportedFormat) as error:
        return offset, file.blame(error.at(offset=offset))
    return offset, None


def _add_batch(file: SegmentFile, header: BatchHeader, state: TransactionState, unfinished: set[int] | None) -> None:
    """Add a batch to `state`, if it is transactional and its producer is in `unfinished`, if that is given.

    The CRC is checked for batches that begin or end a transaction, and for batches that are small enough to be a marker
    with damaged attributes. Other batches do not change the state.
    """
    if header.size <= _MARKER_SIZE or header.is_control:
        file.check_crc(header)
    if not header.is_transactional or (unfinished is not None and header.producer_id not in unfinished):
        return
    if not header.is_control:
        if header.producer_id not in state.open:
            file.check_crc(header)
            state.add_data_batch(header)
    elif header.record_count:
        state.add_marker(header, control_type(file.read(header.position, min(header.size, _MARKER_SIZE))))
        if unfinished is not None:
            unfinished.discard(header.producer_id)
