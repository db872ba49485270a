"""Log of one partition: appends by its single writer, and the offsets that bound reads (Kafka: `UnifiedLog`).

All changes happen on one thread, the event loop's, except `flush`, which blocks and runs on another thread. Reads may
come from any thread; retention and compaction may remove or replace segments meanwhile. An append changes state in
Kafka's order: the .log and its indexes, the log end offset, producer state, the transaction index, the high watermark.

An I/O error takes the log offline: every later operation raises kafka_storage_error, as in a Kafka broker whose log
directory has failed. Acknowledged records stay in the files.

Look-ups by timestamp are in timestamp_lookup.py, those by leader epoch in leader_epoch_lookup.py.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.aborted_transactions import aborted_in
from kafkalog_broker.storage.partition.file_handles import FileSlice, is_out_of_descriptors
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.local_log import FoundRange, LocalLog
from kafkalog_broker.storage.partition.log_segment import LogSegment, segments_from
from kafkalog_broker.storage.partition.producer_state import Marker
from kafkalog_broker.storage.partition.retention import plan_deletion
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, control_batch

ResultT = TypeVar("ResultT")

EVERY_APPEND = 1
"""Value of flush.messages with which records are acknowledged, and readable, only once they are on disk."""
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_new_tuple = tuple.__new__
"""Creates the named tuples of an append without their constructors (measured with benchmarks/broker.py)."""


class ReadResult(NamedTuple):
    """Result of a read.

    Attributes:
        chunks: Whole batches.
        next_offset: Offset after the batches; the requested offset if there are none.
    """

    chunks: list[bytes]
    next_offset: int


class AppendInfo(NamedTuple):
    """Result of an append (Kafka: `LogAppendInfo`).

    Attributes:
        log_append_time_ms: -1 if the topic uses CreateTime.
        is_duplicate: True if the batch was already in the log and was not appended; the offsets are those of the first
            copy.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class Log:
    """Log of one partition. Opened from the result of `load_log` or `create_log_files`.

    Its use ends with `close`, which flushes it, or with `discard`, which does not. `release_files` only closes the
    descriptors of a log that stays in use.

    Attributes:
        high_watermark: Offset below which consumers may read.
        appended_bytes: Number of bytes appended since the log was opened.
        is_follower: True while the log is a copy of another broker's log; `append` is refused then.
        is_closed: True once the log was closed or discarded.
        failure: Error that took the log offline, or None.
        on_failure: Called once, through `call_soon`, with the log and the error if an operation of this log takes it
            offline.
        highest_offset_in_remote_storage: Last offset copied to remote storage; -1 if none was copied or it is not yet
            known.
    """

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
        """Open the log.

        Args:
            loaded: Files and state found by `load_log` or `create_log_files`.
            call_soon: Hands a callback from the flushing thread to the thread that owns the log.
        """
        self.identity = identity
        self.topic, self.topic_id, self.partition = identity
        self.name = f"{self.topic}-{self.partition}"
        self.directory = loaded.directory
        self.config = config
        self.local = LocalLog(loaded, config, now_ms)
        self.epochs = loaded.epochs
        self.producer_state = loaded.producers
        # There is only one replica, so every record that was in the log when it was opened counts as replicated.
        self.high_watermark = loaded.log_end_offset
        self.appended_bytes = 0
        self.is_follower = self.is_closed = False
        self.failure: OSError | None = None
        self._call_soon = call_soon
        self._subscribers: set[Callable[[], None]] = set()
        self.on_failure = on_failure
        self.highest_offset_in_remote_storage = -1

    @property
    def log_end_offset(self) -> int:
        return self.local.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self.local.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """First offset on disk; offsets between the log start offset and this one are in remote storage only."""
        return max(self.local.log_start_offset, self.local.segments[0].base_offset)

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the first offset of the oldest transaction that has not ended below it (LSO)."""
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
    def leader_epoch(self) -> int:
        """Leader epoch that this broker writes with."""
        return max(self.epochs.latest, 0)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return self.local.segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def appended_records(self) -> int:
        """Number of offsets assigned since this log was opened."""
        return max(0, self.local.log_end_offset - self.local.opened_at)

    @property
    def flush_count(self) -> int:
        """Number of flushes since this log was opened."""
        return self.local.flushes

    @property
    def flush_seconds(self) -> float:
        """Duration of all flushes since this log was opened."""
        return self.local.flush_seconds

    def check_online(self) -> None:
        """Raise BrokerError if the log is offline (kafka_storage_error) or closed (unknown_topic_or_partition)."""
        if self.failure is not None:
            raise self.partition_error(ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}")
        if self.is_closed:
            raise self.partition_error(ErrorCode.unknown_topic_or_partition, "the log has been closed")

    def take_offline(self, error: OSError) -> None:
        """Refuse every later operation. `on_failure` is not called, because the caller knows the error."""
        if self.failure is None:
            self.failure = error
            self._call_soon(self.wake)

    def go_offline_and_raise(self, error: OSError | CorruptLog, *, nothing_changed: bool = False) -> NoReturn:
        """Take the log offline and raise BrokerError kafka_storage_error.

        Args:
            nothing_changed: The failed operation changed nothing. If the cause is a lack of file descriptors, the log
                then stays online, so that clients can retry.
        """
        if self.is_closed:
            self.check_online()
        if nothing_changed and is_out_of_descriptors(error):
            raise self.partition_error(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            if self.on_failure is not None:
                self._call_soon(partial(self.on_failure, self, failure))
        raise self.partition_error(ErrorCode.kafka_storage_error, f"the log went offline: {error}") from error

    @contextmanager
    def offline_on_error(self, *, nothing_changed: bool = False) -> Iterator[None]:
        """Call `go_offline_and_raise` if the block raises OSError or CorruptLog."""
        try:
            yield
        except (OSError, CorruptLog) as error:
            self.go_offline_and_raise(error, nothing_changed=nothing_changed)

    def partition_error(
        self, code: ErrorCode, message: str, offset: int | None = None, hint: str | None = None
    ) -> BrokerError:
        """Return an error that names this partition."""
        return BrokerError(code, message, topic_partition=self.name, offset=offset, hint=hint)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the high watermark or log start offset moves, or the log goes offline or is closed.

        A callback that is subscribed several times is called once per change.
        """
        self._subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)

    def wake(self) -> None:
        """Call all subscribers (see `subscribe`)."""
        if self._subscribers:
            for callback in tuple(self._subscribers):  # a callback may unsubscribe itself
                callback()

    def lead(self, leader_epoch: int) -> None:
        """Stop following and become the leader with this epoch; all records count as replicated.

        Blocks. Raises OSError if the leader epoch checkpoint cannot be written.
        """
        self.epochs.assign(max(leader_epoch, self.leader_epoch), self.log_end_offset)
        self.is_follower = False
        self.high_watermark = self.log_end_offset

    def update_config(self, config: LogConfig) -> None:
        """Apply a new configuration; segment settings take effect at the next roll."""
        self.config = self.local.config = config
        waits = config.flush_messages != EVERY_APPEND and self.high_watermark < self.log_end_offset
        if waits and not self.is_follower:
            self.high_watermark = self.log_end_offset
            self.wake()

    def append(self, batch: EncodedBatch, now_ms: int) -> AppendInfo:
        """Append a producer's validated batch to the page cache.

        The base offset and leader epoch are written into the batch's bytes.

        Raises:
            BrokerError: record_list_too_large, kafka_storage_error, not_leader_or_follower if the log follows another
                one, or an error of `ProducerState.check_append`.
        """
        return self._append(batch, now_ms, is_from_client=True, marker=None)

    def append_batch(self, data: bytes | bytearray | memoryview, now_ms: int) -> AppendInfo:
        """Append a v2 batch that the broker itself created, without validation. Raises BrokerError like `append`."""
        copy = data if isinstance(data, bytearray) else bytearray(data)
        return self._append(EncodedBatch.of(copy), now_ms, is_from_client=False, marker=None)

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
        """Append the marker that ends a producer's transaction.

        Args:
            transaction_version: See `Marker`.

        Raises:
            BrokerError: As `append`.
        """
        batch = control_batch(
            control_type, self.log_end_offset, now_ms, producer_id=producer_id, producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        marker = Marker(control_type, coordinator_epoch, transaction_version)
        return self._append(batch, now_ms, is_from_client=False, marker=marker)

    def _append(self, batch: EncodedBatch, now_ms: int, *, is_from_client: bool, marker: Marker | None) -> AppendInfo:
        self.check_online()
        if self.is_follower:
            raise self.partition_error(ErrorCode.not_leader_or_follower, "the log follows another broker's")
        data: bytearray = batch.data  # type: ignore[assignment]
        epoch = self.leader_epoch
        local = self.local
        sent_header = batch.header
        producers = self.producer_state
        base_offset = local.log_end_offset
        last_offset = base_offset + sent_header.last_offset - sent_header.base_offset
        if last_offset >= layout.MAX_INT64:
            message = f"the log is full: the batch would end at offset {last_offset}, above the largest one, 2^63-2"
            hint = "write to another partition or topic"
            raise self.partition_error(ErrorCode.record_list_too_large, message, base_offset, hint)
        if len(data) > self.config.segment_bytes:
            message = (
                f"the batch has {len(data)} bytes, more than segment.bytes of the topic, {self.config.segment_bytes}"
            )
            raise self.partition_error(ErrorCode.record_list_too_large, message)
        _BASE_OFFSET.pack_into(data, layout.OFFSET_AT, base_offset)
        _LEADER_EPOCH.pack_into(data, layout.LEADER_EPOCH_AT, epoch)
        header = _new_tuple(
            BatchHeader, (0, sent_header.size, base_offset, last_offset, *sent_header[4:7], epoch, *sent_header[8:])
        )
        append_time = header.max_timestamp if header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME else -1
        try:
            if epoch != self.epochs.latest:
                self.epochs.assign(epoch, base_offset)
            if local.is_time_to_roll(header, now_ms):
                local.roll(now_ms)
            if header.producer_id >= 0:
                duplicate = producers.check_append(header, marker, is_from_client=is_from_client)
                if duplicate is not None:
                    return AppendInfo(
                        duplicate.base_offset, duplicate.last_offset, duplicate.timestamp if append_time >= 0 else -1,
                        local.log_start_offset, True,
                    )  # fmt: skip
            segment = local.append(_new_tuple(EncodedBatch, (data, header)), now_ms)
            self.appended_bytes += len(data)
            if header.producer_id < 0:
                producers.end_offset = last_offset + 1
            elif (aborted := producers.apply(header, marker)) is not None:
                segment.add_aborted(aborted)
        except (OSError, CorruptLog) as error:
            self.go_offline_and_raise(error, nothing_changed=local.log_end_offset == base_offset)
        if self.config.flush_messages != EVERY_APPEND:
            self.high_watermark = last_offset + 1
            self.wake()
        if marker is not None:
            producers.forget_ended(self.high_watermark)  # a log that is only written would keep them for ever
        return _new_tuple(AppendInfo, (base_offset, last_offset, append_time, local.log_start_offset, False))

    def needs_flush(self, now_ms: int) -> bool:
        return self.local.needs_flush(now_ms) and self.failure is None and not self.is_closed

    def flush(self, up_to: int | None = None) -> None:
        """Return when all records below `up_to` (default: the log end offset) are on disk.

        Blocks; call it from another thread than the one that owns the log. A failed fsync is never repeated, because
        the next one may report success although data was lost.

        Raises:
            BrokerError: kafka_storage_error.
        """
        local = self.local
        try:
            with local.flush_lock:
                if up_to is not None and local.recovery_point >= up_to:
                    return
                self.check_online()
                with self.offline_on_error(nothing_changed=True):  # EMFILE precedes any fsync, so a retry is safe
                    end = local.flush()
                # Before the lock is released: a second flush that has nothing to do must find the records readable.
                if self.config.flush_messages == EVERY_APPEND and self.high_watermark < end and not self.is_follower:
                    self.high_watermark = end
                    if self._subscribers:
                        self._call_soon(self.wake)
        finally:
            local.close_if_abandoned()

    def flush_epochs(self) -> None:
        """Write truncated leader epochs to their file. Blocks; any thread. Raises BrokerError kafka_storage_error."""
        with self.offline_on_error():
            self.epochs.flush()

    def move_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`, which must not be above the high watermark.

        Does nothing if the log start offset is not below `offset` (Kafka: `maybeIncrementLogStartOffset`).
        """
        if offset <= self.log_start_offset:
            return
        self.local.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset(offset)
        self.wake()

    def delete_records(self, offset: int) -> int:
        """Delete the records below `offset` (-1: below the high watermark), and return the new log start offset.

        Raises:
            BrokerError: offset_out_of_range; policy_violation if the topic's cleanup.policy does not contain delete.
        """
        self.check_online()
        if not self.config.deletes_by_retention:
            message = "records can be deleted only if the topic's cleanup.policy contains delete"
            raise self.partition_error(ErrorCode.policy_violation, message)
        start = self.high_watermark if offset == -1 else offset
        if not 0 <= start <= self.high_watermark:
            message = f"records cannot be deleted up to offset {offset}, the high watermark is {self.high_watermark}"
            raise self.partition_error(ErrorCode.offset_out_of_range, message, offset)
        self.move_log_start(start)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> list[Path]:
        """Remove segments by retention, and return their `.deleted` files, to be removed after file.delete.delay.ms.

        An active segment that must be copied to remote storage first is rolled. No segment is removed until everything
        below the first remaining segment is on disk, including that segment's name and producer snapshot. Otherwise,
        after a power failure, the log could end below offsets that it had already assigned, or it could have forgotten
        producers whose records are deleted. The caller tries again after a flush.

        Raises:
            BrokerError: kafka_storage_error.
        """
        self.check_online()
        with self.offline_on_error():
            plan = plan_deletion(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
                highest_remote_offset=self.highest_offset_in_remote_storage,
            )
            if plan.rolls_active or plan.count == len(self.segments):
                self.local.roll(now_ms)
            if not plan.count:
                return []
            if self.local.synced_offset < self.segments[plan.count].base_offset:
                return []
            self.move_log_start(plan.log_start_offset)
            return self.local.remove_first(plan.count)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless `offset` is between the log start and log end offsets."""
        self.check_online()
        if not self.local.log_start_offset <= offset <= self.local.log_end_offset:
            start, end = self.local.log_start_offset, self.local.log_end_offset
            message = f"offset {offset} is outside of the log, which has offsets {start} to {end}"
            raise self.partition_error(ErrorCode.offset_out_of_range, message, offset)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """Find the batches that `read_range` returns, without reading them.

        Their bytes can be read later, even if retention or compaction removes the segment meanwhile. Raises like
        `read_range`.
        """
        local = self.local
        while True:
            # Retention moves the log start offset, then removes segments. With the reverse order of these two reads, an
            # offset that was deleted in between would be reported as an offset in remote storage.
            local_start = self.local_log_start_offset
            self.check_fetch_offset(offset)
            if offset < local_start:
                message = f"offset {offset} is in remote storage, the local log starts at {local_start}"
                raise self.partition_error(ErrorCode.offset_moved_to_tiered_storage, message, offset)
            swaps = local.swaps
            try:
                found = local.find_range(offset, max_bytes, up_to, at_least_one)
                # Search again if retention removed the segment meanwhile, or compaction replaced it.
                if offset >= self.local_log_start_offset and swaps == local.swaps:
                    return found
            except FileNotFoundError as error:
                if self.is_closed or (offset >= self.local_log_start_offset and swaps == local.swaps):
                    self.go_offline_and_raise(error)  # another process removed the file
            except (OSError, CorruptLog) as error:
                if swaps == local.swaps or is_out_of_descriptors(error):
                    self.go_offline_and_raise(error, nothing_changed=True)

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """Return whole batches from the one that contains `offset`, all below `up_to`.

        Args:
            max_bytes: Largest total size of the batches.
            at_least_one: Return the first batch even if it is larger than `max_bytes`.

        Raises:
            BrokerError: offset_out_of_range, offset_moved_to_tiered_storage, kafka_storage_error.
        """
        records = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(file_slice) for file_slice in records.slices], records.next_offset)

    def read_slice(self, file_slice: FileSlice) -> bytes:
        """Return the bytes of a slice of `find_range`. Raises BrokerError kafka_storage_error."""
        try:
            return file_slice.read()
        except OSError as error:
            self.go_offline_and_raise(error, nothing_changed=True)

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield all batches below the present high watermark, in chunks of about `size` bytes.

        Raises like `read_range`.
        """
        offset, end = self.log_start_offset, self.high_watermark
        while offset < end:
            chunks, offset = self.read_range(offset, size, up_to=end, at_least_one=True)
            if not chunks:
                return
            yield from chunks

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [offset, up_to). Raises BrokerError."""
        self.check_online()
        with self.offline_on_error(nothing_changed=True):
            return aborted_in(segments_from(self.segments, offset), offset, up_to)

    def search_segments(self, search: Callable[[tuple[LogSegment, ...]], ResultT]) -> ResultT:
        """Return `search(segments)`. Repeat it if retention, compaction or truncation changes the files meanwhile.

        For look-ups on any thread that read files of segments.

        Raises:
            BrokerError: kafka_storage_error if the search raises OSError or CorruptLog; a BrokerError of the search.
        """
        local = self.local
        while True:
            self.check_online()
            swaps, segments = local.swaps, local.segments  # `swaps` first: it is raised after `segments` is replaced
            try:
                result = search(segments)
            except BrokerError:
                if not local.has_changed(segments, swaps):
                    raise
            except (OSError, CorruptLog) as error:
                if not local.has_changed(segments, swaps) or is_out_of_descriptors(error):
                    self.go_offline_and_raise(error, nothing_changed=True)
            else:
                if not local.has_changed(segments, swaps):
                    return result

    def release_files(self) -> None:
        """Close the writer's three descriptors. The next append opens the files again."""
        with self.offline_on_error():
            self.local.release_files()

    def close(self) -> None:
        """Write the producer snapshot, trim the indexes, flush everything and close. Blocks; idempotent.

        Raises:
            BrokerError: kafka_storage_error.
        """
        if self.is_closed:
            return
        local = self.local
        try:
            with self.offline_on_error():
                if self.failure is None and (local.take_snapshot() or not local.is_synced):
                    with local.flush_lock:
                        local.flush(whole=True)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the files without a flush, for a deleted log or a failed disk. Idempotent; does not block."""
        self.is_closed = True
        self.local.abandon()
        self.wake()
        self._subscribers.clear()
