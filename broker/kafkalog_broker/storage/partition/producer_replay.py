"""Bring producer state up to date from the batches of a log, a window of headers at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.partition.producer_state import BATCHES_KEPT, Marker, ProducerState
from kafkalog_spark.errors import CorruptBatch, CorruptLog, UnsupportedFormat
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.batch_header import transaction_end
from kafkalog_spark.format.layout import H
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.header_windows import Window, header_windows
from kafkalog_spark.store.local_store import DescriptorFile


def replay(state: ProducerState, window: Window) -> list[AbortedTransaction]:
    """Take a window's batches into `state`; the transactions they abort, for the transaction index.

    Of a producer's batches outside of transactions only the last five matter, so only these are looked at one by one.
    """
    aborted = []
    for row in _rows_that_matter(window.table).tolist():
        header = window.header(row)
        marker = read_marker(window.batch(row)) if header.is_control and header.record_count > 0 else None
        ended = state.appended(header, marker)
        if ended is not None:
            aborted.append(ended)
    if len(window.table):
        state.end_offset = int(window.table[-1, H.LAST_OFFSET]) + 1
    return aborted


def first_bad_marker(window: Window) -> tuple[int, CorruptBatch] | None:
    """The first control batch whose record cannot be read (row, why): recovery cuts there (InvalidRecordException)."""
    table = window.table
    of_control = (table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    for row in np.flatnonzero(of_control & (table[:, H.PRODUCER_ID] >= 0) & (table[:, H.COUNT] > 0)).tolist():
        try:
            read_marker(window.batch(row))
        except CorruptBatch as error:
            return row, error.at(position=int(table[row, H.POSITION]))
    return None


def read_marker(batch: memoryview) -> Marker | None:
    """What the control batch says; None when it ends no transaction. Raises CorruptBatch when its record is too
    short."""
    ended = transaction_end(batch)
    return None if ended is None else Marker(*ended)


def _rows_that_matter(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ids = table[:, H.PRODUCER_ID]
    of_producers = ids >= 0
    if not of_producers.any():
        return np.empty(0, np.int64)
    of_transactions = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    plain = of_producers & ((table[:, H.ATTRIBUTES] & of_transactions) == 0)
    rows = np.flatnonzero(plain)
    # Sorted by producer, then by position: the fifth last of each producer is the one five places before the next's.
    by_producer = rows[np.argsort(ids[rows], kind="stable")]
    is_last = np.ones(len(by_producer), bool)
    is_last[:-BATCHES_KEPT] = ids[by_producer[:-BATCHES_KEPT]] != ids[by_producer[BATCHES_KEPT:]]
    return np.sort(np.concatenate((np.flatnonzero(of_producers & ~plain), by_producer[is_last])))


# What was known of producers at an earlier offset of a log: from a snapshot, and the batches after it
# (UnifiedLog.rebuildProducerState).

_log = logging.getLogger(__name__)


def producers_at(
    directory: Path, offset: int, snapshots: Iterable[int], segments: Sequence[tuple[int, int]]
) -> ProducerState:
    """The state at `offset`, where a batch begins or a gap is. Changes nothing; any thread, while the log below does
    not change.

    snapshots: the offsets of those in the directory; those below the log's beginning do not count, as when it is
    loaded. segments: (base offset, bytes) of the log up to `offset`. Raises CorruptBatch, UnsupportedFormat, OSError.
    """
    state = ProducerState()
    for candidate in sorted((known for known in snapshots if segments[0][0] <= known <= offset), reverse=True):
        path = directory / (names.segment_name(candidate) + names.PRODUCER_SNAPSHOT_SUFFIX)
        try:
            state.load(read_producer_snapshot(path), candidate)
            break
        except (CorruptLog, UnsupportedFormat) as error:
            _log.warning("%s; an older one is taken", error)
    else:
        state.clear(0)
    since = state.end_offset
    ends = [*(base for base, _ in segments[1:]), offset]
    for (base, size), end in zip(segments, ends, strict=True):
        if end > since:
            _take_in(state, directory / (names.segment_name(base) + names.LOG_SUFFIX), size, since)
    state.end_offset = offset
    return state


def _take_in(state: ProducerState, path: Path, size: int, since: int) -> None:
    with descriptor(path) as fd:
        for window, wrong in header_windows(DescriptorFile(fd), size):
            replay(state, Window(window.table[window.table[:, H.LAST_OFFSET] >= since], window.data, window.start))
            if wrong is not None:
                raise wrong.at(path=str(path))
