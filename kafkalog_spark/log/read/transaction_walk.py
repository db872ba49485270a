"""Walk of the transactional batches of a range, by their headers."""

from __future__ import annotations

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.batch_header import BatchHeader, read_batch_header
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.log.read.batch_order import ordered_headers
from kafkalog_spark.log.read.batch_search import find_next_batch
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.read.transaction_state import TransactionState

_MARKER_SIZE = 128  # bytes; the largest size of a batch that may be a transaction marker, which has 78


def walk_transactions(
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
        dropped: List to which errors of damage are added, if the log was opened with pass_over_damage.

    Raises:
        CorruptBatch, UnsupportedFormat: For damage, unless the log was opened with pass_over_damage.
        NotALogDirectory: If the log cannot be read.
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
