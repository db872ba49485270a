"""Reads of one log: by offset, by timestamp, aborted transactions, leader epochs.

Look-ups by timestamp (UnifiedLog.fetchOffsetByTimestamp) read, and decompress up to MAX_DECOMPRESSED bytes at a time:
they are for a thread, not for the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.message_sets import inner_messages
from kafkalog_broker.storage.append.recompression import unpacked
from kafkalog_broker.storage.append.record_walk import find_timestamp
from kafkalog_broker.storage.partition.local_log import FoundRange, ReadResult
from kafkalog_broker.storage.partition.log_segment import BatchBounds, FileSlice, LogSegment, is_passing
from kafkalog_broker.storage.partition.log_state import LogState
from kafkalog_spark.errors import CorruptBatch, CorruptLog
from kafkalog_spark.format.batch_header import BatchHeader, parse_header, wrapper_value_at
from kafkalog_spark.format.layout import ATTRIBUTE_LOG_APPEND_TIME, NO_TIMESTAMP, RECORDS_AT, TimestampType
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted

_LOWEST = -(2**63)

MAX_TIMESTAMP = -3
"""ListOffsets' timestamp that asks for the record with the largest timestamp (KIP-734)."""

REMEMBERED = 64
"""Answers that a segment remembers: about 20 kB. Consumers of many groups begin at the same time."""


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp (ms), its offset, and the leader epoch that wrote it (-1 when not known)."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(
    segments: Sequence[LogSegment], timestamp: int, log_start_offset: int
) -> TimestampAndOffset | None:
    """The first record with a timestamp of at least `timestamp` ms and an offset of at least `log_start_offset`."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp:
            continue
        found = _in_segment(segment, timestamp, log_start_offset)
        if found is not None:
            return found
    return None


def max_timestamp_offset(segments: Sequence[LogSegment]) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of the log; None when no record has one."""
    latest = max(segments, key=lambda segment: segment.max_timestamp[0], default=None)
    if latest is None:
        return None
    timestamp, offset = latest.max_timestamp
    if timestamp == NO_TIMESTAMP:
        return None
    bounds = latest.locate(offset)
    if bounds is None:
        return None
    for candidate in latest.bounds_from(bounds.position):
        header = parse_header(latest.handle().read(candidate.position, RECORDS_AT), 0, candidate.position)
        if header.max_timestamp == timestamp:
            question = (candidate.position, MAX_TIMESTAMP, 0)
            return _answered(latest, question, lambda: _max_of(*_batch(latest, candidate)))  # noqa: B023
    return None


def _in_segment(segment: LogSegment, timestamp: int, log_start_offset: int) -> TimestampAndOffset | None:
    """Look-up in one segment, from the offset in the time index on: up to there everything is older."""
    entry = segment.time_index().floor_before(timestamp)
    offset = max(log_start_offset, segment.base_offset if entry is None else entry.offset)
    bounds = segment.locate(offset)
    if bounds is None:
        return None
    for candidate in segment.bounds_from(bounds.position):
        header = parse_header(segment.handle().read(candidate.position, RECORDS_AT), 0, candidate.position)
        if header.max_timestamp >= timestamp:
            question = (candidate.position, timestamp, log_start_offset)
            found = _answered(segment, question, lambda: _in_batch(segment, candidate, timestamp, log_start_offset))  # noqa: B023
            if found is not None:
                return found
    return None


def _answered(
    segment: LogSegment, question: tuple[int, int, int], search: Callable[[], TimestampAndOffset | None]
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
    segment: LogSegment, bounds: BatchBounds, timestamp: int, lowest_offset: int
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
        _LOWEST if append_time else timestamp,
        lowest_offset - header.base_offset,
    )
    if found is None:
        return None
    return TimestampAndOffset(
        header.max_timestamp if append_time else found[0], header.base_offset + found[1], header.leader_epoch
    )


def _max_of(header: BatchHeader, batch: bytes) -> TimestampAndOffset:
    """The first record of a batch that has its max timestamp (DefaultRecordBatch.offsetOfMaxTimestamp)."""
    offset = header.last_offset
    if header.magic < 2:
        found_times = (
            offset for offset, message_time in _messages(header, batch) if message_time == header.max_timestamp
        )
        offset = next(found_times, header.last_offset)
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


def _batch(segment: LogSegment, bounds: BatchBounds) -> tuple[BatchHeader, bytes]:
    batch = segment.handle().read(bounds.position, bounds.size)
    return parse_header(batch, 0, bounds.position), batch


def _records(header: BatchHeader, batch: bytes) -> memoryview:
    records = memoryview(batch)[RECORDS_AT:]
    return unpacked(header.codec, records) if header.codec else records


class LogReader:
    """Reads one log from any thread; segments may be removed, or replaced by compaction, meanwhile."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._local = state.local

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """Whole batches from the one that holds `offset` on, all below `up_to`, at most `max_bytes` of them; and the
        offset after what was read.

        at_least_one: the first one comes even when it is larger. Nothing at `up_to` and past it. Raises BrokerError:
        offset_out_of_range, kafka_storage_error.
        """
        found = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(one) for one in found.slices], found.next_offset)

    def read_slice(self, found: FileSlice) -> bytes:
        """The bytes that find_range has found. Raises BrokerError kafka_storage_error."""
        try:
            return found.read()
        except OSError as error:
            self._state.fail(error, nothing_happened=True)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """As read_range, but only where those batches lie: the bytes can be read later, whatever happens to the log."""
        while True:
            self.check_fetch_offset(offset)
            swaps = self._local.swaps
            try:
                found = self._local.find_range(offset, max_bytes, up_to, at_least_one)
                # Else retention took the beginning meanwhile, or compaction the file.
                if offset >= self._local.log_start_offset and swaps == self._local.swaps:
                    return found
            except FileNotFoundError as error:
                if self._state.is_closed or (offset >= self._local.log_start_offset and swaps == self._local.swaps):
                    self._state.fail(error)  # the file was not ours to lose
            except (OSError, CorruptLog) as error:
                if swaps == self._local.swaps or is_passing(error):
                    self._state.fail(error, nothing_happened=True)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless the log holds `offset`, or will next."""
        self._state.check()
        if not self._local.log_start_offset <= offset <= self._local.log_end_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, the log goes from {self._local.log_start_offset} to {self._local.log_end_offset}",
                topic_partition=self._state.name,
                offset=offset,
            )

    def aborted_transactions(self, offset: int, up_to: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with records in [offset, up_to), by the transaction indexes. Raises
        BrokerError."""
        found = self.aborted_between(offset, up_to)
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def aborted_between(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """As aborted_transactions, with the offsets of their markers."""
        self._state.check()
        found: list[AbortedTransaction] = []
        try:
            for segment in self._local.segments_from(offset):
                search = collect_aborted(segment.aborted(), offset, up_to)
                found += search.transactions
                if search.complete:
                    break
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """(timestamp, offset, leader epoch) of the first record with a timestamp of at least `timestamp` ms."""
        self._state.check()
        try:
            return offset_for_timestamp(self._local.segments, timestamp, self._local.log_start_offset)
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """As offset_for_timestamp, for the largest timestamp; None when no record has one."""
        self._state.check()
        try:
            return max_timestamp_offset(self._local.segments)
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset), (-1, -1) when it is not known: OffsetForLeaderEpoch's answer."""
        return self._state.epochs.end_offset_for(epoch, self._local.log_end_offset)

    def diverging_epoch(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the last epoch here that a log can have in common with this one which holds, before
        `offset`, a batch of `last_epoch`; None where all of it can be common (Partition.readRecords). Raises
        BrokerError offset_out_of_range, also for an epoch of which nothing is known."""
        self._state.check()
        epoch, end = self.end_offset_for_epoch(last_epoch)
        if min(epoch, end) < 0 or offset < self._local.log_start_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} after a batch of leader epoch {last_epoch}, of which nothing is known here",
                topic_partition=self._state.name, offset=offset,
            )  # fmt: skip
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when it is not known."""
        return self._state.epochs.epoch_of(offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless `epoch`, what a client takes for the current one, is; -1 is never wrong."""
        current = max(self._state.epochs.latest, 0)
        if epoch in (-1, current):
            return
        code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
        raise BrokerError(
            code, f"leader epoch {epoch} was asked for, the current one is {current}", topic_partition=self._state.name
        )
