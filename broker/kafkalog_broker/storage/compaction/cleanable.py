"""Which part of a log is to be compacted, and how its segments are put together: decisions on plain values.

LogCleanerManager.cleanableOffsets, LogToClean, Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import LastRecord
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import NO_TIMESTAMP, ControlType, H
from kafkalog_spark.format.offset_index import MAX_RELATIVE_OFFSET
from kafkalog_spark.format.transaction_index import AbortedTransaction

NEVER_MS = 2**63 - 1  # the value of max.compaction.lag.ms that sets no limit


class SegmentFacts(NamedTuple):
    """A segment of a log that is not open. largest_timestamp, first_timestamp: ms."""

    base_offset: int
    size: int
    largest_timestamp: int = NO_TIMESTAMP
    first_timestamp: int = 1


Segments = Sequence[LogSegment] | Sequence[SegmentFacts]
"""Timestamps are asked for only where a lag is configured."""


class LogFacts(NamedTuple):
    """Input for one log. checkpoint: up to where it was cleaned the last time, None when it never was."""

    segments: Segments
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The part of a log that can be cleaned: the keys of [first_dirty_offset, first_uncleanable_offset) count.

    clean_bytes, dirty_bytes: below first_dirty_offset, and between the two. overdue_ms: the oldest dirty record's age
    beyond max.compaction.lag.ms. resets_checkpoint: it lies outside of the log, and is to say first_dirty_offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    resets_checkpoint: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def cleanable(log: LogFacts, config: LogConfig, now_ms: int) -> Cleanable:
    """The part of a log that can be cleaned now: nothing at or above the active segment, the last stable offset, or the
    first segment with a record younger than min.compaction.lag.ms. Whole segments only."""
    first_dirty = log.log_start_offset if log.checkpoint is None else log.checkpoint
    resets = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if resets:
        first_dirty = log.log_start_offset
    active = log.segments[-1]
    dirty = _inactive_from(log.segments, first_dirty)
    bound = min(log.last_stable_offset, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                bound = min(bound, segment.base_offset)
                break
    inactive = _inactive_from(log.segments, max(first_dirty, bound))
    first_uncleanable = inactive[0].base_offset if inactive else active.base_offset
    overdue_ms = 0
    if config.max_compaction_lag_ms < NEVER_MS:
        timestamps = [timestamp for segment in dirty if (timestamp := segment.first_timestamp) > 0]
        overdue_ms = max(now_ms - config.max_compaction_lag_ms - min(timestamps), 0) if timestamps else 0
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in log.segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        overdue_ms,
        resets,
    )


def _inactive_from(segments: Segments, offset: int) -> Segments:
    """The segment that holds `offset`, and those after it; never the active one."""
    if offset >= segments[-1].base_offset:
        return ()
    return segments[max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0) : -1]


class SourceSize(NamedTuple):
    """Sizes of a segment's files in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


def group_segments(
    sizes: Sequence[SourceSize], max_size: int, max_index_size: int, end_offset: int
) -> list[tuple[int, int]]:
    """(first, end) of neighbours that become one segment: no larger than segment.bytes, with indexes that hold what
    theirs hold, and offsets that fit an index. end_offset: after the last segment. A segment that is empty is never
    left alone, however far its offset reaches."""
    firsts: list[int] = []
    total = SourceSize(0, 0, 0, 0)
    for slot, size in enumerate(sizes):
        after = sizes[slot + 1].base_offset if slot + 1 < len(sizes) else end_offset
        if (
            firsts
            and total.log + size.log <= max_size
            and total.offset_index + size.offset_index <= max_index_size
            and total.time_index + size.time_index <= max_index_size
            and (size.log == 0 or after - 1 - total.base_offset <= MAX_RELATIVE_OFFSET)
        ):
            total = SourceSize(total.base_offset, *map(operator.add, total[1:], size[1:]))
        else:
            firsts.append(slot)
            total = size
    return list(pairwise((*firsts, len(sizes))))


# Last batches of producers that are still known: their headers stay (Cleaner.cleanInto).

_NO_DATA = -1


class KnownProducers:
    """The producers that the log knows, made ready to be asked for many batches."""

    def __init__(self, last_records: Mapping[int, LastRecord]) -> None:
        self._last_records = last_records
        records = last_records.values()
        self._offsets = np.unique(np.fromiter((record.last_data_offset for record in records), np.int64))
        self._with_marker_only = np.array(
            sorted(producer for producer, record in last_records.items() if record.last_data_offset == _NO_DATA),
            np.int64,
        )

    def last_batches(self, table: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which batches' headers hold the last sequence number, or the epoch, of a producer that is still known."""
        found = np.zeros(len(table), bool)
        candidates = _are_in(self._offsets, table[:, H.LAST_OFFSET])
        candidates |= _are_in(self._with_marker_only, table[:, H.PRODUCER_ID])
        for row in np.flatnonzero(candidates & (table[:, H.PRODUCER_ID] >= 0)).tolist():
            header = table[row]
            record = self._last_records.get(int(header[H.PRODUCER_ID]))
            if record is None:
                continue
            if record.last_data_offset != _NO_DATA:
                found[row] = header[H.LAST_OFFSET] == record.last_data_offset
            else:
                is_control = bool(header[H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL)
                found[row] = is_control and header[H.PRODUCER_EPOCH] == record.producer_epoch
        return found


def _are_in(ordered: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), bool)
    places = np.searchsorted(ordered, values)
    places[places == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[places] == values
    return found


# Transactions as the cleaner passes them: whose records go, and when a marker may go too
# (CleanedTransactionMetadata).
#
# Records of an aborted transaction go at once. A marker goes when no batch of its transaction was met any more, so
# it outlives them by at least one cleaning; an abort marker that stays keeps its entry of the transaction index.


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    was_met: bool = False


class CleanedTransactions:
    """aborted: all that have records in the offsets that are going to be passed; batches come in order of offsets.

    retained: entries of the transaction index for the abort markers that have stayed, taken away by `take_retained`.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in set(aborted)]
        heapq.heapify(self._coming)
        self._aborted: dict[int, _Aborted] = {}  # producer id -> the transaction that is being passed
        self._committed: set[int] = set()
        self._retained: list[AbortedTransaction] = []

    def may_drop_records(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch of records is passed: True when its transaction was aborted."""
        self._begin_up_to(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.was_met = True
        return True

    def may_drop_marker(self, producer_id: int, last_offset: int, control_type: ControlType | None) -> bool:
        """True when no batch of the transaction ended here is left. control_type: None for a marker emptied before."""
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        if control_type == ControlType.COMMIT:
            was_met = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_met
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not aborted.was_met:
            return True
        self._retained.append(aborted.transaction)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
