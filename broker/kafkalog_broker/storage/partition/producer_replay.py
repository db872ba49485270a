"""Producer state rebuilt from snapshots and from batches in the log."""

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
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.layout import (
    HeaderColumn,
)
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.segment_file import Window, header_windows
from kafkalog_spark.store.local_store import DescriptorFile

_log = logging.getLogger(__name__)


def replay(state: ProducerState, window: Window) -> list[AbortedTransaction]:
    """Take a window's batches into `state`; the transactions they abort, for the transaction index. Of a producer's
    batches outside of transactions only the last five matter, so only these are looked at one by one."""
    aborted = []
    for row in _rows_that_matter(window.table).tolist():
        header = window.header(row)
        marker = read_marker(window.batch(row)) if header.is_control and header.record_count > 0 else None
        ended = state.appended(header, marker)
        if ended is not None:
            aborted.append(ended)
    if len(window.table):
        state.end_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
    return aborted


def first_bad_marker(window: Window) -> tuple[int, CorruptBatch] | None:
    """The first control batch whose record cannot be read (row, why): recovery cuts there (InvalidRecordException)."""
    table = window.table
    of_control = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    for row in np.flatnonzero(
        of_control & (table[:, HeaderColumn.PRODUCER_ID] >= 0) & (table[:, HeaderColumn.COUNT] > 0)
    ).tolist():
        try:
            read_marker(window.batch(row))
        except CorruptBatch as error:
            return row, error.at(position=int(table[row, HeaderColumn.POSITION]))
    return None


def read_marker(batch: memoryview) -> Marker | None:
    """Marker in the control batch; None when it ends no transaction. CorruptBatch when its record is too short."""
    ended = transaction_end(batch)
    return None if ended is None else Marker(*ended)


def _rows_that_matter(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ids = table[:, HeaderColumn.PRODUCER_ID]
    of_producers = ids >= 0
    if not of_producers.any():
        return np.empty(0, np.int64)
    of_transactions = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    plain = of_producers & ((table[:, HeaderColumn.ATTRIBUTES] & of_transactions) == 0)
    rows = np.flatnonzero(plain)
    # Sorted by producer, then by position: the fifth last of each producer is the one five places before the next's.
    by_producer = rows[np.argsort(ids[rows], kind="stable")]
    is_last = np.ones(len(by_producer), bool)
    is_last[:-BATCHES_KEPT] = ids[by_producer[:-BATCHES_KEPT]] != ids[by_producer[BATCHES_KEPT:]]
    return np.sort(np.concatenate((np.flatnonzero(of_producers & ~plain), by_producer[is_last])))


def newest_snapshot(directory: Path, offsets: Iterable[int]) -> tuple[ProducerState | None, list[int]]:
    """The state in the newest of the snapshots at `offsets` that can be read, None without one; the offsets of those
    that are damaged and newer. Raises OSError."""
    damaged = []
    for offset in sorted(offsets, reverse=True):
        try:
            entries = read_producer_snapshot(directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX))
        except (CorruptLog, UnsupportedFormat) as error:
            _log.warning("%s; an older one is taken", error)
            damaged.append(offset)
        else:
            state = ProducerState()
            state.load(entries, offset)
            return state, damaged
    return None, damaged


def replay_segments(
    state: ProducerState, directory: Path, segments: Sequence[tuple[int, int | None]], since: int
) -> None:
    """Take the batches that end at or after `since` into `state`. segments: (base offset, bytes that count; None: all).
    Changes no file. Raises CorruptBatch, UnsupportedFormat with file, position and offset; OSError."""
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
