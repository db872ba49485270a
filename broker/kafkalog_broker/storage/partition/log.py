"""The log of one partition: appends by its one writer, and the offsets that bound what is read (UnifiedLog).

Threads: everything that changes a log happens in one thread (the event loop's), but for `flush`, which blocks and is
meant for another one. Reads may come from any thread: segments may be removed, or replaced by compaction, meanwhile.
What an append changes is changed in Kafka's order: the .log and its indexes, the log end offset, producer state, the
transaction index, the high watermark.

An I/O error takes the log offline: from then on every operation raises kafka_storage_error, as a broker whose log
directory has failed answers. Acknowledged records stay in the files.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.file_handles import FileSlice, is_out_of_descriptors
from kafkalog_broker.storage.partition.local_log import FoundRange, LoadedLog, LocalLog
from kafkalog_broker.storage.partition.log_segment import LogSegment, segments_from
from kafkalog_broker.storage.partition.offset_lookup import (
    TimestampAndOffset,
    aborted_in,
    offset_in_segment,
    offset_of_max_timestamp,
)
from kafkalog_broker.storage.partition.producer_state import Marker
from kafkalog_broker.storage.partition.retention import segments_to_delete
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.tiered.remote_names import TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, control_batch

EVERY_APPEND = 1  # the value of flush.messages with which only what is on disk is acknowledged and shown to consumers
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_new = tuple.__new__
"""Makes the three tuples of an append without the constructors of their classes, which are 8 % of its time."""


class ReadResult(NamedTuple):
    """chunks: whole batches. next_offset: the offset after them; the one asked for when there are none."""

    chunks: list[bytes]
    next_offset: int


class AppendInfo(NamedTuple):
    """Result of an append. log_append_time_ms: -1 with CreateTime. duplicate: not appended; the first one's offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """A log that `load_log` has found, or a new one. call_soon: how `flush`, in its thread, hands the wake-up of
    subscribers to the thread they live in. high_watermark: offset up to which consumers read. appended_bytes: since the
    log was opened. follows: the log copies another broker's, and takes no appends of its own. failure: the error that
    took it offline. on_failure: called, once and through call_soon, with the log and an error that was met in it."""

    def __init__(
        self,
        identity: TopicIdPartition,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
        *,
        call_soon: Callable[[Callable[[], None]], object] = operator.call,
        on_failure: Callable[[Log, OSError], None] | None = None,
    ) -> None:
        self.identity = identity
        self.topic, self.topic_id, self.partition = identity
        self.name = f"{self.topic}-{self.partition}"
        self.directory = loaded.directory
        self.config = config
        self.local = LocalLog(loaded, config, now_ms)
        self.epochs, self.producer_state = loaded.epochs, loaded.producers
        # One replica: whatever was in the log when it was opened is as replicated as it will ever be.
        self.high_watermark = loaded.log_end_offset
        self.appended_bytes = 0
        self.follows = self.is_closed = False
        self.failure: OSError | None = None
        self._call_soon = call_soon
        self._subscribers: set[Callable[[], None]] = set()
        self.on_failure = on_failure
        self.highest_offset_in_remote_storage = -1
        """The last offset that was copied to remote storage; -1 for none, and before that is known."""

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return self.local.segments

    @property
    def log_start_offset(self) -> int:
        return self.local.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """Where the log begins on disk; what lies between the log start offset and this is remote."""
        return max(self.local.log_start_offset, self.local.segments[0].base_offset)

    @property
    def log_end_offset(self) -> int:
        return self.local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """LSO: the high watermark, or the first offset of the oldest transaction not ended below it."""
        high_watermark = self.high_watermark
        unstable = self.producer_state.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.local.log_start_offset), high_watermark)

    @property
    def recovery_point(self) -> int:
        return self.local.recovery_point

    @property
    def synced_offset(self) -> int:
        return self.local.synced_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def appended_records(self) -> int:
        """Number of offsets that were assigned since this log was opened."""
        return max(0, self.local.log_end_offset - self.local.opened_at)

    @property
    def flush_count(self) -> int:
        """Number of flushes since this log was opened."""
        return self.local.flushes

    @property
    def flush_seconds(self) -> float:
        """Duration of all flushes since this log was opened."""
        return self.local.flush_seconds

    def lead(self, leader_epoch: int) -> None:
        """Stop following, and write with this epoch; all records count as replicated. Blocks. Raises OSError."""
        self.epochs.assign(max(leader_epoch, self.leader_epoch), self.log_end_offset)
        self.follows, self.high_watermark = False, self.log_end_offset

    # ---- availability

    def check(self) -> None:
        """Raise BrokerError: kafka_storage_error when the log is offline, unknown_topic_or_partition when closed."""
        if self.failure is not None:
            raise self.error(ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}")
        if self.is_closed:
            raise self.error(ErrorCode.unknown_topic_or_partition, "the log has been closed")

    def error(self, code: ErrorCode, what: str, offset: int | None = None, hint: str | None = None) -> BrokerError:
        return BrokerError(code, what, topic_partition=self.name, offset=offset, hint=hint)

    def take_offline(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self._call_soon(self.wake)

    def fail(self, error: OSError | CorruptLog, *, nothing_happened: bool = False) -> NoReturn:
        """Take the log offline and raise BrokerError kafka_storage_error. nothing_happened: then the log stays online
        where only descriptors are lacking; clients try again."""
        if self.is_closed:
            self.check()
        if nothing_happened and is_out_of_descriptors(error):
            raise self.error(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            if self.on_failure is not None:
                self._call_soon(partial(self.on_failure, self, failure))
        raise self.error(ErrorCode.kafka_storage_error, f"the log went offline: {error}") from error

    @contextmanager
    def failing(self, *, nothing_happened: bool = False) -> Iterator[None]:
        """An OSError or CorruptLog in the block is this log's end, as `fail`."""
        try:
            yield
        except (OSError, CorruptLog) as error:
            self.fail(error, nothing_happened=nothing_happened)

    def wake(self) -> None:
        if self._subscribers:
            for callback in tuple(self._subscribers):  # a callback may unsubscribe itself
                callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback`, without arguments, whenever the high watermark or the log start offset moves, or the log
        goes away or offline; once for one move however often it is subscribed."""
        self._subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)

    # ---- appending

    def append(self, batch: EncodedBatch, now_ms: int) -> AppendInfo:
        """Append a producer's validated batch, in whose bytes its place is stamped, to the page cache. Raises
        BrokerError: record_list_too_large, kafka_storage_error, the errors of ProducerState.check_append,
        not_leader_or_follower for a log that follows another."""
        return self._append(batch, now_ms, from_client=True, marker=None)

    def append_batch(self, data: bytes | bytearray | memoryview, now_ms: int) -> AppendInfo:
        """Append a v2 batch of the broker's own, which is not validated again. Raises as append."""
        own = data if isinstance(data, bytearray) else bytearray(data)
        return self._append(EncodedBatch.of(own), now_ms, from_client=False, marker=None)

    def append_control(
        self,
        control_type: ControlType,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
        *,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Write the marker that ends a producer's transaction. Raises as append. transaction_version: see Marker."""
        batch = control_batch(
            control_type, self.log_end_offset, now_ms, producer_id=producer_id, producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        marker = Marker(control_type, coordinator_epoch, transaction_version)
        return self._append(batch, now_ms, from_client=False, marker=marker)

    def _append(self, batch: EncodedBatch, now_ms: int, *, from_client: bool, marker: Marker | None) -> AppendInfo:
        self.check()
        if self.follows:
            raise self.error(ErrorCode.not_leader_or_follower, "the log follows another broker's")
        data: bytearray = batch.data  # type: ignore[assignment]
        epoch = self.leader_epoch
        local, sent, producers = self.local, batch.header, self.producer_state
        base_offset = local.log_end_offset
        last_offset = base_offset + sent.last_offset - sent.base_offset
        if last_offset >= layout.MAX_INT64:
            what = f"offsets up to {last_offset}, the last one there is is 2^63-2: the log is full"
            hint = "write to another partition or topic"
            raise self.error(ErrorCode.record_list_too_large, what, base_offset, hint)
        if len(data) > self.config.segment_bytes:
            what = f"a batch of {len(data)} bytes, segment.bytes of the topic is {self.config.segment_bytes}"
            raise self.error(ErrorCode.record_list_too_large, what)
        _BASE_OFFSET.pack_into(data, layout.OFFSET_AT, base_offset)
        _LEADER_EPOCH.pack_into(data, layout.LEADER_EPOCH_AT, epoch)
        header = _new(BatchHeader, (0, sent.size, base_offset, last_offset, *sent[4:7], epoch, *sent[8:]))
        append_time = header.max_timestamp if header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME else -1
        try:
            if epoch != self.epochs.latest:
                self.epochs.assign(epoch, base_offset)
            if local.is_time_to_roll(header, now_ms):
                local.roll(now_ms)
            if header.producer_id >= 0:
                duplicate = producers.check_append(header, marker, from_client=from_client)
                if duplicate is not None:
                    return AppendInfo(
                        duplicate.base_offset, duplicate.last_offset, duplicate.timestamp if append_time >= 0 else -1,
                        local.log_start_offset, True,
                    )  # fmt: skip
            segment = local.append(_new(EncodedBatch, (data, header)), now_ms)
            self.appended_bytes += len(data)
            if header.producer_id < 0:
                producers.end_offset = last_offset + 1
            elif (aborted := producers.appended(header, marker)) is not None:
                segment.add_aborted(aborted)
        except (OSError, CorruptLog) as error:
            self.fail(error, nothing_happened=local.log_end_offset == base_offset)
        if self.config.flush_messages != EVERY_APPEND:
            self.high_watermark = last_offset + 1
            self.wake()
        if marker is not None:
            producers.forget_ended(self.high_watermark)  # or nobody does while nobody reads
        return _new(AppendInfo, (base_offset, last_offset, append_time, local.log_start_offset, False))

    # ---- flushing

    def needs_flush(self, now_ms: int) -> bool:
        return self.local.needs_flush(now_ms) and self.failure is None and not self.is_closed

    def flush_epochs(self) -> None:
        """Write truncated leader epochs to their file. Blocks; for a thread. Raises BrokerError kafka_storage_error."""
        with self.failing():
            self.epochs.flush()

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below `up_to` (default: all there is) is on disk. Blocks; for a thread. Raises
        BrokerError kafka_storage_error; a failed fsync is never tried again, since the next one may claim success."""
        local = self.local
        try:
            with local.flush_lock:
                if up_to is not None and local.recovery_point >= up_to:
                    return
                self.check()
                with self.failing(nothing_happened=True):  # too many files: then no fsync failed
                    end = local.flush()
        finally:
            local.flushed()
        if self.config.flush_messages == EVERY_APPEND and self.high_watermark < end and not self.follows:
            self.high_watermark = end
            if self._subscribers:
                self._call_soon(self.wake)

    # ---- what leaves it

    def move_log_start(self, offset: int) -> None:
        """Raise the log start offset, at most to the high watermark. Raises BrokerError kafka_storage_error."""
        if offset <= self.log_start_offset:
            return
        self.local.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset(offset)
        self.wake()

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset` (-1: the high watermark); returns the low watermark. Raises BrokerError:
        offset_out_of_range, policy_violation for a topic without cleanup.policy delete."""
        self.check()
        if not self.config.is_deleted:
            what = "records are deleted only of topics whose cleanup.policy contains delete"
            raise self.error(ErrorCode.policy_violation, what)
        start = self.high_watermark if offset == -1 else offset
        if not 0 <= start <= self.high_watermark:
            what = f"offset {offset}, records can be deleted up to the high watermark {self.high_watermark}"
            raise self.error(ErrorCode.offset_out_of_range, what, offset)
        self.move_log_start(start)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> list[Path]:
        """Remove segments by retention; the `.deleted` files that may be removed after file.delete.delay.ms. An active
        segment that has to be copied to remote storage first is rolled.

        Removes nothing before everything below the first segment that stays is on disk, with its name and its producer
        snapshot: after a power cut the log would otherwise end below offsets that it had given out, or forget producers
        whose records are gone. The caller tries again after a flush. Raises BrokerError.
        """
        self.check()
        with self.failing():
            deletion = segments_to_delete(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
                highest_remote_offset=self.highest_offset_in_remote_storage,
            )
            if deletion.rolls_active or deletion.count == len(self.segments):
                self.local.roll(now_ms)
            if not deletion.count:
                return []
            if self.local.synced_offset < self.segments[deletion.count].base_offset:
                return []
            self.move_log_start(deletion.log_start_offset)
            return self.local.remove_first(deletion.count)

    # ---- housekeeping

    def update_config(self, config: LogConfig) -> None:
        """Settings of segments apply from the next one on."""
        self.config = self.local.config = config
        waits = config.flush_messages != EVERY_APPEND and self.high_watermark < self.log_end_offset
        if waits and not self.follows:
            self.high_watermark = self.log_end_offset
            self.wake()

    def release_files(self) -> None:
        """Close the writer's three descriptors; the next append opens the files again."""
        with self.failing():
            self.local.release_files()

    def close(self) -> None:
        """Close: snapshot written, indexes trimmed, all on disk. Blocks; idempotent. Raises kafka_storage_error."""
        if self.is_closed:
            return
        local = self.local
        try:
            with self.failing():
                if self.failure is None and (local.take_snapshot() or not local.is_synced):
                    with local.flush_lock:
                        local.flush(whole=True)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the files as they are: the log is deleted, or its disk has failed. Idempotent; waits for nothing."""
        self.is_closed = True
        self.local.abandon()
        self.wake()
        self._subscribers.clear()

    # ---- batches by offset

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """Whole batches from the one that holds `offset` on, all below `up_to`, of at most `max_bytes`, but with
        at_least_one the first one in any case. Raises BrokerError: offset_out_of_range, kafka_storage_error."""
        found = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(file_slice) for file_slice in found.slices], found.next_offset)

    def chunks(self, size: int) -> Iterator[bytes]:
        """All batches below the present high watermark, some `size` bytes at a time. Raises as read_range."""
        offset, end = self.log_start_offset, self.high_watermark
        while offset < end:
            chunks, offset = self.read_range(offset, size, up_to=end, at_least_one=True)
            if not chunks:
                return
            yield from chunks

    def read_slice(self, file_slice: FileSlice) -> bytes:
        try:
            return file_slice.read()
        except OSError as error:
            self.fail(error, nothing_happened=True)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """As read_range, but only where those batches lie: the bytes can be read later, whatever happens to the log."""
        local = self.local
        while True:
            local_start = self.local_log_start_offset  # before the check: retention moves the log start offset first
            self.check_fetch_offset(offset)
            if offset < local_start:
                what = f"offset {offset} lies in remote storage, the local log begins at {local_start}"
                raise self.error(ErrorCode.offset_moved_to_tiered_storage, what, offset)
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
                if swaps == local.swaps or is_out_of_descriptors(error):
                    self.fail(error, nothing_happened=True)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless the log holds `offset`, or will next."""
        self.check()
        if not self.local.log_start_offset <= offset <= self.local.log_end_offset:
            what = f"offset {offset}, the log goes from {self.local.log_start_offset} to {self.local.log_end_offset}"
            raise self.error(ErrorCode.offset_out_of_range, what, offset)

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Those with records in [offset, up_to). Raises BrokerError."""
        self.check()
        with self.failing(nothing_happened=True):
            return aborted_in(segments_from(self.segments, offset), offset, up_to)

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
        """As offset_lookup.offset_of_max_timestamp. Raises BrokerError."""
        self.check()
        with self.failing(nothing_happened=True):
            return offset_of_max_timestamp(self.segments)

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
            what = f"offset {offset} after a batch of leader epoch {last_epoch}, of which nothing is known here"
            raise self.error(ErrorCode.offset_out_of_range, what, offset)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless `epoch`, what a client takes for the current one, is; -1 is never wrong."""
        current = self.leader_epoch
        if epoch in (-1, current):
            return
        code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
        raise self.error(code, f"leader epoch {epoch} was asked for, the current one is {current}")
