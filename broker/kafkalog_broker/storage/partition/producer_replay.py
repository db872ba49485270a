"""Rebuilding of producer state from snapshots and from batches in the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.producer_state import BATCHES_KEPT, Marker, ProducerState
from kafkalog_spark.errors import CorruptBatch, CorruptLog, UnsupportedFormat
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.header_windows import Window, header_windows
from kafkalog_spark.store.local_store import DescriptorFile

_log = logging.getLogger(__name__)


def replay(state: ProducerState, window: Window) -> list[AbortedTransaction]:
    """Apply a window's batches to `state`, and return the transactions that they abort, for the transaction index.

    Of a producer's batches outside of transactions only the last five are applied, because no others are kept.
    """
    aborted = []
    for row in _rows_to_apply(window.table).tolist():
        header = window.header(row)
        marker = read_marker(window.batch(row)) if header.is_control and header.record_count > 0 else None
        transaction = state.apply(header, marker)
        if transaction is not None:
            aborted.append(transaction)
    if len(window.table):
        state.end_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
    return aborted


def first_bad_marker(window: Window) -> tuple[int, CorruptBatch] | None:
    """Return the row and the error of the first control batch that cannot be read; None if all are good.

    Recovery truncates there (Kafka: `InvalidRecordException`).
    """
    table = window.table
    is_control = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    for row in np.flatnonzero(
        is_control & (table[:, HeaderColumn.PRODUCER_ID] >= 0) & (table[:, HeaderColumn.COUNT] > 0)
    ).tolist():
        try:
            read_marker(window.batch(row))
        except CorruptBatch as error:
            return row, error.at(position=int(table[row, HeaderColumn.POSITION]))
    return None


def read_marker(batch: memoryview) -> Marker | None:
    """Return the marker in a control batch; None if it does not end a transaction.

    Raises CorruptBatch if it is too short.
    """
    ended = transaction_end(batch)
    return None if ended is None else Marker(*ended)


def _rows_to_apply(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ids = table[:, HeaderColumn.PRODUCER_ID]
    has_producer = ids >= 0
    if not has_producer.any():
        return np.empty(0, np.int64)
    transaction_bits = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    plain = has_producer & ((table[:, HeaderColumn.ATTRIBUTES] & transaction_bits) == 0)
    rows = np.flatnonzero(plain)
    # Sorted by producer, then by position: a row is one of its producer's last five unless the fifth row after it has
    # the same producer.
    by_producer = rows[np.argsort(ids[rows], kind="stable")]
    is_last = np.ones(len(by_producer), bool)
    is_last[:-BATCHES_KEPT] = ids[by_producer[:-BATCHES_KEPT]] != ids[by_producer[BATCHES_KEPT:]]
    return np.sort(np.concatenate((np.flatnonzero(has_producer & ~plain), by_producer[is_last])))


def newest_snapshot(directory: Path, offsets: Iterable[int]) -> tuple[ProducerState | None, list[int]]:
    """Load the newest readable producer snapshot.

    Args:
        offsets: Offsets of the snapshots on disk.

    Returns:
        The state, or None without a readable snapshot; the offsets of newer snapshots that are damaged.

    Raises:
        OSError: If a file cannot be read.
    """
    damaged = []
    for offset in sorted(offsets, reverse=True):
        try:
            entries = read_producer_snapshot(directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX))
        except (CorruptLog, UnsupportedFormat) as error:
            _log.warning("%s; trying an older producer snapshot", error)
            damaged.append(offset)
        else:
            state = ProducerState()
            state.load(entries, offset)
            return state, damaged
    return None, damaged


def replay_segments(
    state: ProducerState, directory: Path, segments: Sequence[tuple[int, int | None]], since: int
) -> None:
    """Apply the batches that end at or after `since` to `state`. Changes no file.

    Args:
        segments: Base offset and number of bytes to read of each segment; None for the whole .log.

    Raises:
        CorruptBatch, UnsupportedFormat: With file, position and offset.
        OSError: If a file cannot be read.
    """
    first = max((base for base, _ in segments if base <= since), default=0)
    for base, size in segments:
        if base < first:
            continue
        path = directory / (names.segment_name(base) + names.LOG_SUFFIX)
        with descriptor(path) as fd:
            for window, wrong in header_windows(DescriptorFile(fd), os.fstat(fd).st_size if size is None else size):
                is_new = window.table[:, HeaderColumn.LAST_OFFSET] >= since
                replay(state, Window(window.table[is_new], window.data, window.start))
                if wrong is not None:
                    raise wrong.at(path=str(path), offset=state.end_offset)
