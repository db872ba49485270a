"""Which part of a log is to be compacted, and how its segments are put together: decisions on plain values
(LogCleanerManager.cleanableOffsets, LogToClean, Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import Producer
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


Segments = Sequence[LogSegment] | Sequence[SegmentFacts]  # timestamps are asked for only where a lag is configured


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
    clean_bytes, dirty_bytes: below it, and in it. overdue_ms: the oldest dirty record's age beyond
    max.compaction.lag.ms. resets_checkpoint: it lies outside of the log, and is to say first_dirty_offset."""

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
    """(first, end) of neighbours that become one segment: no larger than segment.bytes, with indexes for what theirs
    hold, and offsets that fit one. end_offset: after the last segment. A segment that is empty is never left alone."""
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


_NO_DATA = -1


def last_records(producers: Iterable[Producer]) -> npt.NDArray[np.int64]:
    """int64[n, 3], by id: id, offset of the last data batch (-1 when only a marker is known), epoch
    (UnifiedLog.lastRecordsOfActiveProducers)."""
    # by a generator, which lets others have the interpreter: a log may know hundreds of thousands
    values = (
        value
        for one in producers
        for value in (one.id, one.batches[-1].last_offset if one.batches else _NO_DATA, one.epoch)
    )
    rows = np.fromiter(values, np.int64).reshape(-1, 3)
    return rows[rows[:, 0].argsort()]


def last_batches(table: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """bool[n]: batches whose headers stay, as they hold the last sequence number, or the epoch, of a producer that is
    still known (Cleaner.cleanInto). known: as last_records."""
    if not len(known):
        return np.zeros(len(table), bool)
    ids, offsets, epochs = known.T
    slots = np.minimum(np.searchsorted(ids, table[:, H.PRODUCER_ID]), len(ids) - 1)
    is_control = (table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL) != 0
    has_epoch = is_control & (epochs[slots] == table[:, H.PRODUCER_EPOCH])
    is_last = np.where(offsets[slots] == _NO_DATA, has_epoch, offsets[slots] == table[:, H.LAST_OFFSET])
    found: npt.NDArray[np.bool_] = is_last & (ids[slots] == table[:, H.PRODUCER_ID])
    return found


# Transactions as the cleaner passes them: whose records go, and when a marker may go too
# (CleanedTransactionMetadata).
#
# Records of an aborted transaction go at once. A marker goes when no batch of its transaction was met any more, so
# it outlives them by at least one cleaning; an abort marker that stays keeps its entry of the transaction index.


class CleanedTransactions:
    """aborted: all with records in the offsets that are going to be passed; batches come in order of offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(transaction.first_offset, transaction) for transaction in set(aborted)]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id: those that are being passed
        self._met: set[int] = set()  # producers whose transaction has had a batch
        self._retained: list[AbortedTransaction] = []

    def may_drop_records(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch of records is passed: True when its transaction was aborted."""
        self._begin_up_to(last_offset)
        self._met.add(producer_id)
        return producer_id in self._aborted

    def may_drop_marker(self, producer_id: int, last_offset: int, control_type: ControlType | None) -> bool:
        """True when no batch of the transaction ended here is left. control_type: None for a marker emptied before."""
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        was_met = producer_id in self._met
        self._met.discard(producer_id)
        if control_type == ControlType.COMMIT:
            return not was_met
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or not was_met:
            return True
        self._retained.append(aborted)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)
