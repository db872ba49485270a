"""The last stable offset and the aborted transactions of a partition, found by walking batch headers."""

from __future__ import annotations

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.log.batch_header import check_crc, control_type
from kafkalog_spark.log.partition_log import PartitionLog
from kafkalog_spark.log.producer_snapshot import read_producer_snapshot
from kafkalog_spark.log.segment_file import SegmentFile
from kafkalog_spark.log.transactions import TransactionState


def last_stable_offset(log: PartitionLog) -> int:
    """LSO: the first offset of the oldest transaction still open at the log's end, or the log end offset.

    Begins at the latest producer snapshot that can be read (it tells the transactions open there), else at the start.
    """
    end = log.log_end_offset
    start, state = log.log_start_offset, TransactionState()
    for at, path in log.snapshots_up_to(end):
        if at < log.log_start_offset:
            break
        try:
            entries = read_producer_snapshot(path)
        except (CorruptLog, UnsupportedFormat, OSError):
            continue  # an older one, or the log itself, tells the same
        start = at
        state.open = {e.producer_id: e.transaction_first_offset for e in entries if e.has_open_transaction}
        break
    _walk(log, start, end, state)
    return state.last_stable_offset(end)


def aborted_transactions(log: PartitionLog, start: int, end: int) -> TransactionState:
    """Transactions with records in [start, end) that were aborted; `open` holds those without a marker up to the LEO.

    Reads on behind `end` only while transactions of the range are open.
    """
    state = TransactionState()
    _walk(log, start, end, state)
    concerned = set(state.open)
    if concerned:
        _walk(log, end, log.log_end_offset, state, concerned)
    return state


def _walk(log: PartitionLog, start: int, end: int, state: TransactionState, waiting: set[int] | None = None) -> None:
    """Feed the transactional batches of [start, end) to `state`.

    With `waiting`, batches of other producers are passed over and the walk ends with the last of these transactions.
    """
    if start >= end or not log.segments:
        return
    offset = start
    while offset < end and (waiting is None or waiting):
        index = log.segment_index(offset)
        try:
            file = log.open_segment(index)
        except FileNotFoundError:
            log.refresh()
            continue
        with file:
            reached = _walk_segment(file, offset, end, state, waiting)
        following = log.next_base_offset(index)
        if following is None:
            return
        offset = max(reached, following)


def _walk_segment(file: SegmentFile, start: int, end: int, state: TransactionState, waiting: set[int] | None) -> int:
    """As _walk, in one segment; returns the offset after the last batch seen.

    CRCs are checked of the batches that begin or end a transaction: the others change nothing.
    """
    offset = start
    try:
        for header in file.headers(file.locate(start)):
            if header.last_offset < start:
                continue
            if header.base_offset >= end:
                return header.base_offset
            offset = header.last_offset + 1
            if not header.is_transactional or (waiting is not None and header.producer_id not in waiting):
                continue
            if not header.is_control:
                if header.producer_id not in state.open:
                    check_crc(header, file.read(header.position, header.size))
                    state.data_batch(header)
            elif header.record_count:
                batch = file.read(header.position, header.size)
                check_crc(header, batch)
                state.marker(header, control_type(batch))
                if waiting is not None:
                    waiting.discard(header.producer_id)
                    if not waiting:
                        return offset
    except (CorruptLog, UnsupportedFormat) as error:
        raise file.blame(error) from None
    return offset
