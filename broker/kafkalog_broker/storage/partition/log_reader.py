"""The state of one partition's log, and its reads: by offset, by timestamp, aborted transactions, leader epochs.

An I/O error takes the log offline: from then on every operation raises kafka_storage_error, as a broker whose log
directory has failed answers. Acknowledged records stay in the files.

Look-ups by timestamp (UnifiedLog.fetchOffsetByTimestamp) read, and decompress up to MAX_DECOMPRESSED bytes at a time:
they are for a thread, not for the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, NoReturn, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.message_sets import inner_messages
from kafkalog_broker.storage.append.recompression import unpacked
from kafkalog_broker.storage.append.record_walk import find_timestamp
from kafkalog_broker.storage.partition.local_log import FoundRange, LoadedLog, LocalLog, LogIdentity
from kafkalog_broker.storage.partition.log_segment import (
    BatchBounds,
    FileSlice,
    LogSegment,
    TimedSegment,
    is_passing,
)
from kafkalog_spark.errors import CorruptBatch, CorruptLog
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, wrapper_value_at
from kafkalog_spark.format.layout import (
    ATTRIBUTE_LOG_APPEND_TIME,
    MIN_INT64,
    NO_TIMESTAMP,
    RECORDS_AT,
    TimestampType,
)
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Timestamps of ListOffsets that ask for the end, the beginning, and the record with the largest timestamp (KIP-734).
"""

REMEMBERED = 64
"""Answers that a segment remembers: about 20 kB. Consumers of many groups begin at the same time."""


class ReadResult(NamedTuple):
    """chunks: whole batches. next_offset: the offset after them; the one asked for when there are none."""

    chunks: list[bytes]
    next_offset: int


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp (ms), its offset, and the leader epoch that wrote it (-1 when not known)."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    """The readable side of a log; `log.Log` adds what changes it. Reads may come from any thread: segments may be
    removed, or replaced by compaction, meanwhile. The state belongs to the log's thread, but for `check`, `fail` and
    `take_offline`.

    high_watermark: offset up to which consumers read. appended_bytes: since the log was opened; never less than before,
    whatever retention takes. follows: the log copies another broker's, and takes no appends of its own. failure: the
    error that took it offline. call_soon: runs a callback in the log's thread. on_failure: called there, once, with the
    log and an error that was met in it.
    """

    on_failure: Callable[..., None] | None

    def __init__(
        self,
        identity: LogIdentity,
        loaded: LoadedLog,
        local: LocalLog,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.topic, self.partition, self.topic_id = identity
        self.name = f"{self.topic}-{self.partition}"
        self.local = local
        self.epochs = loaded.epochs
        self.producer_state = loaded.producers
        # One replica: whatever was in the log when it was opened is as replicated as it will ever be.
        self.high_watermark = loaded.log_end_offset
        self.appended_bytes = 0
        self.follows = False
        self.failure: OSError | None = None
        self.is_closed = False
        self._call_soon = call_soon
        self._subscribers: set[Callable[[], None]] = set()

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """By base offset; the last one is the active one."""
        return self.local.segments

    @property
    def log_start_offset(self) -> int:
        """Below it, nothing is read any more."""
        return self.local.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """Where the log begins that is on disk; what lies between the log start offset and this is remote."""
        return max(self.local.log_start_offset, self.local.segments[0].base_offset)

    @property
    def log_end_offset(self) -> int:
        """LEO: the offset of the next record."""
        return self.local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """LSO: the high watermark, or the first offset of the oldest transaction not ended below it."""
        high_watermark = self.high_watermark
        unstable = self.producer_state.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.local.log_start_offset), high_watermark)

    # ---- availability

    def check(self) -> None:
        """Raise BrokerError kafka_storage_error for a log that is offline, unknown_topic_or_partition for one that was
        closed."""
        if self.failure is not None:
            raise BrokerError(
                ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}", topic_partition=self.name
            )
        if self.is_closed:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, "the log has been closed", topic_partition=self.name
            )

    def take_offline(self, error: OSError) -> None:
        """The log directory has failed elsewhere."""
        if self.failure is None:
            self.failure = error
            self._call_soon(self.wake)

    def fail(self, error: OSError | CorruptLog, *, nothing_happened: bool = False) -> NoReturn:
        """Take the log offline and raise BrokerError kafka_storage_error. nothing_happened: the operation changed
        nothing, so the log stays online where only descriptors are lacking; clients try again."""
        if self.is_closed:
            self.check()
        if nothing_happened and is_passing(error):
            raise BrokerError(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
                topic_partition=self.name,
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            if self.on_failure is not None:
                self._call_soon(partial(self.on_failure, self, failure))
        raise BrokerError(
            ErrorCode.kafka_storage_error, f"the log went offline: {error}", topic_partition=self.name
        ) from error

    @contextmanager
    def failing(self, *, nothing_happened: bool = False) -> Iterator[None]:
        """An OSError or CorruptLog in the block is this log's end, as `fail`."""
        try:
            yield
        except (OSError, CorruptLog) as error:
            self.fail(error, nothing_happened=nothing_happened)

    def wake(self) -> None:
        """Call the subscribers: long polls, above all."""
        if self._subscribers:
            for callback in tuple(self._subscribers):  # a callback may unsubscribe itself
                callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback`, without arguments, whenever the high watermark or the log start offset moves, or the log
        goes away or offline; once for one move however often it is subscribed."""
        self._subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)

    # ---- batches by offset

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """Whole batches from the one that holds `offset` on, all below `up_to`, at most `max_bytes` of them; and the
        offset after what was read.

        at_least_one: the first one comes even when it is larger. Nothing at `up_to` and past it. Raises BrokerError:
        offset_out_of_range, kafka_storage_error.
        """
        found = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(file_slice) for file_slice in found.slices], found.next_offset)

    def read_slice(self, file_slice: FileSlice) -> bytes:
        """The bytes that find_range has found. Raises BrokerError kafka_storage_error."""
        try:
            return file_slice.read()
        except OSError as error:
            self.fail(error, nothing_happened=True)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """As read_range, but only where those batches lie: the bytes can be read later, whatever happens to the log."""
        local = self.local
        while True:
            self.check_fetch_offset(offset)
            if offset < self.local_log_start_offset:
                raise BrokerError(
                    ErrorCode.offset_moved_to_tiered_storage,
                    f"offset {offset} lies in remote storage, the local log begins at {self.local_log_start_offset}",
                    topic_partition=self.name,
                    offset=offset,
                )
            swaps = local.swaps
            try:
                found = local.find_range(offset, max_bytes, up_to, at_least_one)
                # Else retention took the beginning meanwhile, or compaction the file.
                if offset >= self.local_log_start_offset and swaps == local.swaps:
                    return found
            except FileNotFoundError as error:
                if self.is_closed or (offset >= self.local_log_start_offset and swaps == local.swaps):
                    self.fail(error)  # the file was not ours to lose
            except (OSError, CorruptLog) as error:
                if swaps == local.swaps or is_passing(error):
                    self.fail(error, nothing_happened=True)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless the log holds `offset`, or will next."""
        self.check()
        if not self.local.log_start_offset <= offset <= self.local.log_end_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, the log goes from {self.local.log_start_offset} to {self.local.log_end_offset}",
                topic_partition=self.name,
                offset=offset,
            )

    def aborted_transactions(self, offset: int, up_to: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with records in [offset, up_to), by the transaction indexes. Raises
        BrokerError."""
        return [(aborted.producer_id, aborted.first_offset) for aborted in self.aborted_between(offset, up_to)]

    def aborted_between(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """As aborted_transactions, with the offsets of their markers."""
        self.check()
        with self.failing(nothing_happened=True):
            return aborted_in(self.local.segments_from(offset), offset, up_to)

    # ---- offsets by timestamp

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record with a timestamp of at least `timestamp` ms. Raises BrokerError."""
        self.check()
        start = self.local.log_start_offset
        with self.failing(nothing_happened=True):
            for segment in self.segments:
                if segment.max_timestamp[0] >= timestamp:
                    found = offset_in_segment(segment, timestamp, start)
                    if found is not None:
                        return found
        return None

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp of the log; None when no record has one. Raises BrokerError."""
        self.check()
        with self.failing(nothing_happened=True):
            latest = max(self.segments, key=lambda segment: segment.max_timestamp[0])
            timestamp, offset = latest.max_timestamp
            bounds = None if timestamp == NO_TIMESTAMP else latest.locate(offset)
            for candidate in () if bounds is None else latest.bounds_from(bounds.position):
                if _header(latest, candidate).max_timestamp == timestamp:
                    search = partial(_max_of, latest, candidate)
                    return _answered(latest, (candidate.position, MAX_TIMESTAMP, 0), search)
        return None

    # ---- leader epochs

    @property
    def leader_epoch(self) -> int:
        """The epoch that this log's leader, always this broker, writes with."""
        return max(self.epochs.latest, 0)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset), (-1, -1) when it is not known: OffsetForLeaderEpoch's answer."""
        return self.epochs.end_offset_for(epoch, self.local.log_end_offset)

    def diverging_epoch(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the last epoch here that a log can have in common with this one which holds, before
        `offset`, a batch of `last_epoch`; None where all of it can be common (Partition.readRecords). Raises
        BrokerError offset_out_of_range, also for an epoch of which nothing is known."""
        self.check()
        epoch, end = self.end_offset_for_epoch(last_epoch)
        if min(epoch, end) < 0 or offset < self.local.log_start_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} after a batch of leader epoch {last_epoch}, of which nothing is known here",
                topic_partition=self.name, offset=offset,
            )  # fmt: skip
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless `epoch`, what a client takes for the current one, is; -1 is never wrong."""
        current = max(self.epochs.latest, 0)
        if epoch in (-1, current):
            return
        code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
        raise BrokerError(
            code, f"leader epoch {epoch} was asked for, the current one is {current}", topic_partition=self.name
        )


def aborted_in(segments: Iterable[LogSegment], offset: int, up_to: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [offset, up_to); `segments`: from the one that holds `offset` on.
    Raises OSError, CorruptIndex."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        search = collect_aborted(segment.aborted(), offset, up_to)
        found += search.transactions
        if search.complete:
            break
    return found


def offset_in_segment(segment: TimedSegment, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """The first record of a segment, at or above the log start offset, with a timestamp of at least `timestamp` ms.
    Raises BrokerError (CORRUPT_MESSAGE), CorruptLog, OSError."""
    # From the offset in the time index on: up to there everything is older.
    entry = segment.time_index().floor_before(timestamp)
    bounds = segment.locate(max(log_start_offset, segment.base_offset if entry is None else entry.offset))
    for candidate in () if bounds is None else segment.bounds_from(bounds.position):
        if _header(segment, candidate).max_timestamp >= timestamp:
            search = partial(_in_batch, segment, candidate, timestamp, log_start_offset)
            found = _answered(segment, (candidate.position, timestamp, log_start_offset), search)
            if found is not None:
                return found
    return None


# Look-ups by timestamp in one batch


def _answered(
    segment: TimedSegment, question: tuple[int, int, int], search: Callable[[], TimestampAndOffset | None]
) -> TimestampAndOffset | None:
    """Cached result of `search`: a batch never changes, and one of 60 kB may decompress to 60 MB.

    question: (position, timestamp, lowest offset). A segment remembers REMEMBERED answers. Raises BrokerError
    (CORRUPT_MESSAGE).
    """
    answers = segment.found_by_time
    if question in answers:
        return cast(TimestampAndOffset | None, answers[question])
    try:
        found = search()
    except CorruptBatch as error:  # what is in one batch: the log is as good as before
        position, timestamp, _ = question
        raise BrokerError(
            ErrorCode.corrupt_message,
            f"the batch at byte {position} of {segment.log_path} cannot be searched for timestamp {timestamp}: {error}",
        ) from error
    if len(answers) >= REMEMBERED:
        answers.clear()
    answers[question] = found
    return found


def _in_batch(
    segment: TimedSegment, bounds: BatchBounds, timestamp: int, lowest_offset: int
) -> TimestampAndOffset | None:
    header, batch = _batch(segment, bounds)
    append_time = bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME)
    if header.magic < 2:
        for offset, message_time in _messages(header, batch):
            if message_time >= timestamp and offset >= lowest_offset:
                return TimestampAndOffset(message_time, offset, header.leader_epoch)
        return None
    if header.record_count <= 0:
        return None
    found = find_timestamp(
        _records(header, batch),
        header.record_count,
        header.base_timestamp,
        MIN_INT64 if append_time else timestamp,
        lowest_offset - header.base_offset,
    )
    if found is None:
        return None
    return TimestampAndOffset(
        header.max_timestamp if append_time else found[0], header.base_offset + found[1], header.leader_epoch
    )


def _max_of(segment: LogSegment, bounds: BatchBounds) -> TimestampAndOffset:
    """The first record of a batch that has its max timestamp (DefaultRecordBatch.offsetOfMaxTimestamp)."""
    header, batch = _batch(segment, bounds)
    offset = header.last_offset
    if header.magic < 2:
        offset = next((at for at, time in _messages(header, batch) if time == header.max_timestamp), offset)
    elif header.record_count > 0:
        if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            offset = header.base_offset
        else:
            records = _records(header, batch)
            found = find_timestamp(records, header.record_count, header.base_timestamp, header.max_timestamp, 0)
            offset = header.base_offset + found[1] if found is not None else header.last_offset
    return TimestampAndOffset(header.max_timestamp, offset, header.leader_epoch)


def _messages(header: BatchHeader, batch: bytes) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of a message of format v0 or v1, or of each in a wrapper; LogAppendTime is the wrapper's."""
    if not header.codec:
        yield header.last_offset, header.max_timestamp
        return
    payload = unpacked(header.codec, memoryview(batch)[wrapper_value_at(batch, header.magic) :])
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for offset, timestamp in inner_messages(payload, header.magic, header.last_offset):
        yield offset, header.max_timestamp if append_time else timestamp


def _header(segment: TimedSegment, bounds: BatchBounds) -> BatchHeader:
    return parse_header(segment.handle().read(bounds.position, RECORDS_AT), 0, bounds.position)


def _batch(segment: TimedSegment, bounds: BatchBounds) -> tuple[BatchHeader, bytes]:
    batch = segment.handle().read(bounds.position, bounds.size)
    return parse_header(batch, 0, bounds.position), batch


def _records(header: BatchHeader, batch: bytes) -> memoryview:
    records = memoryview(batch)[RECORDS_AT:]
    return unpacked(header.codec, records) if header.codec else records


# ListOffsets 0: where segments begin, and where the log ends, newest first (Log.legacyFetchOffsetsBefore).
#
# Before messages had timestamps this was how a consumer found a place by time: a segment counts as written when its
# file was last modified.

Place = tuple[int, int]
"""An offset, and from when on it counts (ms)."""


def listed_offsets(places: Sequence[Place], timestamp: int, most: int, high_watermark: int) -> list[int]:
    """At most `most` offsets, falling, from the newest one that was there at `timestamp` ms on; LATEST, EARLIEST: from
    the last, from the first one on.

    places: by offset. Consumers see no end above the high watermark, but that.
    """
    if timestamp == LATEST:
        end = len(places)
    elif timestamp == EARLIEST:
        end = min(len(places), 1)
    else:
        end = next((slot for slot in range(len(places), 0, -1) if places[slot - 1][1] <= timestamp), 0)
    found = sorted((offset for offset, _ in places[max(end - most, 0) : end]), reverse=True)
    if found and found[0] > high_watermark:
        return [high_watermark, *(offset for offset in found if offset <= high_watermark)]
    return found


def segment_places(
    segments: Iterable[LogSegment], log_start_offset: int, log_end_offset: int, now_ms: int, *, with_times: bool
) -> list[Place]:
    """Where segments begin, and the log end offset when the last one holds something. with_times: the files are asked
    for theirs; for a thread. A segment that is removed meanwhile is left out. Raises OSError."""
    places: list[Place] = []
    for segment in segments:
        try:
            modified_ms = os.stat(segment.log_path).st_mtime_ns // 1_000_000 if with_times else 0
        except FileNotFoundError:
            continue
        places.append((max(segment.base_offset, log_start_offset), modified_ms))
    if not places or places[-1][0] < log_end_offset:
        places.append((log_end_offset, now_ms))
    return places
