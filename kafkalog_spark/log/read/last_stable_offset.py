"""The last stable offset and the aborted transactions of a partition, found by walking batch headers.

A .txnindex has the same information, but a missing or truncated one looks like a log without aborts, and returning an
aborted record is worse than walking the headers. Offsets of batches are enough: a producer's transaction begins with
its first transactional batch and ends with its next control batch (KIP-98).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, announced_batch
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.producer_snapshot import open_transactions
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.batch_order import ordered_headers
from kafkalog_spark.log.read.batch_search import find_batch_behind
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate


@dataclass
class TransactionState:
    """Transactions open at an offset, and those that were aborted before it. Feed it batches in order.

    open: producer ID -> first offset.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def data_batch(self, header: BatchHeader) -> None:
        """Add a transactional batch of records."""
        self.open.setdefault(header.producer_id, header.base_offset)

    def marker(self, header: BatchHeader, control_type: int) -> None:
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
    """Finds the LSO of a log again and again. Each walk resumes where the last one ended, if its batch is unchanged."""

    def __init__(self) -> None:
        self._state = TransactionState()
        self._reached: LogEnd | None = None

    def last_stable_offset(self, log: PartitionLog) -> int:
        """Return the LSO now. Raises as `open_transactions_at`."""
        end, reached = log.log_end, self._reached
        self._reached = None  # a walk that fails leaves an incomplete state
        if reached is not None and log.still_holds(reached):
            start = reached.offset
        else:
            start, producers = log.latest_snapshot(end.offset) or (log.log_start_offset, [])
            self._state = TransactionState(open_transactions(producers))
        _walk(log, start, end.offset, self._state)
        self._state.aborted.clear()
        self._reached = end
        # A transaction may have begun in records that were deleted since. What is left of it is not stable.
        return max(self._state.last_stable_offset(end.offset), log.log_start_offset)


def aborted_transactions(
    log: PartitionLog, start: int, end: int, dropped: list[KafkalogError] | None = None
) -> TransactionState:
    """Return the aborted transactions that have records in [start, end).

    `open` of the result holds those without a marker up to the log end. Batches behind `end` are read only while
    transactions of the range are open. For remote segments their transaction indexes are used, if complete.

    Args:
        log: The partition.
        start: First offset.
        end: End of the range.
        dropped: List to which damage behind `end` is added, in a log opened with pass_over_damage. Damage in the range
            itself is found by the scan of the range.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
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
    """Feed the transactional batches of [start, end) to `state`.

    waiting: producer IDs of open transactions. Batches of other producers are then ignored, and the walk stops when the
    last of these transactions has ended.
    """
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
    """Walk one segment, from the batch `begin` on if given.

    Batches behind the one that reaches `end` are not read, since a torn tail may begin there.

    Returns:
        The offset behind the last batch, and the error that stopped the walk early.
    """
    position, offset = (locate(file, start), file.base_offset) if begin is None else (begin.position, begin.base_offset)
    if waiting is None:
        file.expect(position, end)
    try:
        for header in ordered_headers(file, position, offset):
            if header.base_offset >= end:
                return header.base_offset, None
            if header.last_offset >= start:
                _feed(file, header, state, waiting)
            position, offset = header.end, header.last_offset + 1
            if offset >= end or (waiting is not None and not waiting):
                return offset, None
        if position < file.size:
            announced_batch(file.read, position, file.size, believed=file.size)
    except (CorruptLog, UnsupportedFormat) as error:
        return offset, file.blame(error.at(offset=offset))
    return offset, None


def _feed(file: SegmentFile, header: BatchHeader, state: TransactionState, waiting: set[int] | None) -> None:
    """Feed a batch to `state`, if it is transactional and its producer is in `waiting`, if that is given.

    The CRC is checked of batches that begin or end a transaction, and of those small enough to be a marker with damaged
    attributes. Other batches change nothing.
    """
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
