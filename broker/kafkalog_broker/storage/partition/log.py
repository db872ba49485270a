"""The log of one partition: appends by its one writer, reads by anybody, and the offsets that bound both (UnifiedLog).

Threads: everything that changes a log happens in one thread (the event loop's), but for `flush`, which blocks and is
meant for another one. `reader` may be used from any thread. What an append changes is changed in
Kafka's order: the .log and its indexes, the log end offset, producer state, the transaction index, the high watermark.
"""

from __future__ import annotations

import operator
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.follower import Follower, follows_another
from kafkalog_broker.storage.partition.loaded_log import LoadedLog, LogIdentity, create_log_files
from kafkalog_broker.storage.partition.local_log import LocalLog, LogWork
from kafkalog_broker.storage.partition.log_flush import EVERY_APPEND
from kafkalog_broker.storage.partition.log_reader import LogReader
from kafkalog_broker.storage.partition.log_removal import delete_old_segments, delete_records, replace_segments
from kafkalog_broker.storage.partition.log_segment import FileHandles, LogSegment
from kafkalog_broker.storage.partition.log_state import AppendInfo, LogState
from kafkalog_broker.storage.partition.producer_state import Marker, ProducerState
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import layout
from kafkalog_spark.format.atomic_file import DIRECTORY_MODE
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, build_batch, control_batch

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_new = tuple.__new__
"""Makes the three tuples of an append without the constructors of their classes, which are 8 % of its time."""
_HANDLES = FileHandles()  # one bound for all logs of a process
_JITTER = random.Random()  # one for all: each is 2.5 kB


class Log:
    """Make it with `create` for a new partition, or from what `log_loader.load_log` found in a directory.

    reader: reads it. config: replaced as a whole by `update_config`. call_soon: how `flush`, in its thread, hands the
    wake-up of subscribers to the thread they live in (an event loop's call_soon_threadsafe). on_failure: called, once
    and through call_soon, with the error that took the log offline.
    """

    def __init__(
        self,
        identity: LogIdentity,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
        *,
        call_soon: Callable[[Callable[[], None]], object] = operator.call,
        on_failure: Callable[[Log, OSError], None] | None = None,
        handles: FileHandles = _HANDLES,
        jitter: random.Random = _JITTER,
    ) -> None:
        self.topic, self.partition, self.topic_id = identity
        self.config = config
        self.directory = loaded.directory
        self.on_failure = on_failure
        self._local = LocalLog(loaded, config, now_ms, handles, jitter)
        self._state = LogState(self.name, loaded, self._local, call_soon, self._failed)
        self._producers = loaded.producers
        self.reader = LogReader(self._state)

    @classmethod
    def create(
        cls,
        identity: LogIdentity,
        config: LogConfig,
        directory: Path,
        now_ms: int,
        *,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        sync: bool = True,
        **options: object,
    ) -> Log:
        """A new, empty log in `directory`, which is made. As create_log_files."""
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        loaded = create_log_files(
            directory, identity.topic_id, log_start_offset=log_start_offset, leader_epoch=leader_epoch, sync=sync
        )
        return cls(identity, config, loaded, now_ms, **options)  # type: ignore[arg-type]

    # ---- what it is

    @property
    def name(self) -> str:
        """`topic-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def failure(self) -> OSError | None:
        """The error that took the log offline."""
        return self._state.failure

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed

    @property
    def log_start_offset(self) -> int:
        """Below it, nothing is read any more."""
        return self._local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """LEO: the offset of the next record."""
        return self._local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Consumers read up to it."""
        return self._state.high_watermark

    @property
    def appended_bytes(self) -> int:
        """Bytes appended since the log was opened; never less than before, whatever retention takes."""
        return self._state.appended_bytes

    @property
    def last_stable_offset(self) -> int:
        """LSO: the high watermark, or the first offset of the oldest transaction not ended below it."""
        high_watermark = self.high_watermark
        unstable = self._producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self._local.log_start_offset), high_watermark)

    @property
    def leader_epoch(self) -> int:
        """The epoch that this log's leader, always this broker, writes with."""
        return max(self._state.epochs.latest, 0)

    @property
    def work(self) -> LogWork:
        """Counts since the log was opened."""
        return self._local.work

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self._local.flushing.recovery_point

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._local.segments)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """By base offset; the last one is the active one."""
        return self._local.segments

    @property
    def producer_state(self) -> ProducerState:
        """State of the producers that write to it."""
        return self._producers

    # ---- following another broker's log

    def follow(self) -> Follower:
        """From now on the log takes what a leader elsewhere has, its high watermark too; `append` is refused."""
        self._state.follows = True
        return Follower(self._state)

    def lead(self, leader_epoch: int) -> None:
        """Stop following, and write with this epoch; all records count as replicated. Blocks. Raises OSError."""
        self._state.epochs.assign(max(leader_epoch, self.leader_epoch), self._local.log_end_offset)
        self._state.follows, self._state.high_watermark = False, self._local.log_end_offset

    # ---- appending

    def append(self, batch: EncodedBatch, now_ms: int) -> AppendInfo:
        """Append a producer's validated batch, in whose bytes its place is stamped: into the page cache, not further.
        Synchronous. Raises BrokerError: record_list_too_large, the errors of ProducerState.check_append,
        kafka_storage_error, not_leader_or_follower for a log that follows another."""
        return self._append(batch, now_ms, from_client=True, marker=None)

    def append_batch(self, data: bytes | bytearray | memoryview, now_ms: int) -> AppendInfo:
        """Append a v2 batch of the broker's own, which is not validated again. Raises as append."""
        own = data if isinstance(data, bytearray) else bytearray(data)
        return self._append(EncodedBatch.of(own), now_ms, from_client=False, marker=None)

    def append_records(self, records: Sequence[tuple[bytes | None, bytes | None]], now_ms: int) -> AppendInfo:
        """Append the broker's own (key, value) records as one batch. Raises as append."""
        return self._append(build_batch(records, now_ms), now_ms, from_client=False, marker=None)

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
        """Write the marker that ends a producer's transaction. Raises as append. transaction_version: from 2 on it must
        have a higher epoch than the transaction."""
        marker = control_batch(
            control_type, self._local.log_end_offset, now_ms, producer_id=producer_id, producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        return self._append(
            marker, now_ms, from_client=False,
            marker=Marker(control_type, coordinator_epoch, transaction_version),
        )  # fmt: skip

    def _append(self, batch: EncodedBatch, now_ms: int, *, from_client: bool, marker: Marker | None) -> AppendInfo:
        state = self._state
        state.check()
        if state.follows:
            raise follows_another(self.name)
        data: bytearray = batch.data  # type: ignore[assignment]
        epoch = self.leader_epoch
        local, sent = self._local, batch.header
        base_offset = local.log_end_offset
        last_offset = base_offset + sent.last_offset - sent.base_offset
        if last_offset >= layout.MAX_INT64:
            raise BrokerError(
                ErrorCode.record_list_too_large,
                f"offsets up to {last_offset}, the last one there is is 2^63-2: the log is full",
                topic_partition=self.name,
                offset=base_offset,
                hint="write to another partition or topic",
            )
        if len(data) > self.config.segment_bytes:
            raise BrokerError(
                ErrorCode.record_list_too_large,
                f"a batch of {len(data)} bytes, segment.bytes of the topic is {self.config.segment_bytes}",
                topic_partition=self.name,
            )
        _BASE_OFFSET.pack_into(data, layout.OFFSET_AT, base_offset)
        _LEADER_EPOCH.pack_into(data, layout.LEADER_EPOCH_AT, epoch)
        header = _new(BatchHeader, (0, sent.size, base_offset, last_offset, *sent[4:7], epoch, *sent[8:]))
        append_time = header.max_timestamp if header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME else -1
        try:
            if epoch != state.epochs.latest:
                state.epochs.assign(epoch, base_offset)
            if local.is_time_to_roll(header, now_ms):
                state.roll(now_ms)
            if header.producer_id >= 0:
                known = self._producers.check_append(header, marker, from_client=from_client)
                if known is not None:
                    return AppendInfo(
                        known.base_offset, known.last_offset, known.timestamp if append_time >= 0 else -1,
                        local.log_start_offset, True,
                    )  # fmt: skip
            segment = local.append(_new(EncodedBatch, (data, header)))
            state.appended_bytes += len(data)
            if header.producer_id < 0:
                self._producers.end_offset = last_offset + 1
            elif (aborted := self._producers.appended(header, marker)) is not None:
                segment.add_aborted(aborted)
        except (OSError, CorruptLog) as error:
            state.fail(error, nothing_happened=local.log_end_offset == base_offset)
        local.flushing.appended(now_ms)
        if self.config.flush_messages != EVERY_APPEND:
            state.high_watermark = last_offset + 1
            state.wake()
        if marker is not None:
            self._producers.forget_ended(self.high_watermark)  # or nobody does while nobody reads
        return _new(AppendInfo, (base_offset, last_offset, append_time, local.log_start_offset, False))

    # ---- rolling

    def roll(self, now_ms: int) -> bool:
        """Begin a new segment at the log end offset; False while the active one is empty."""
        self._state.check()
        if not self._local.active.size:
            return False
        try:
            self._state.roll(now_ms)
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)
        return True

    # ---- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """True when flush.messages or flush.ms ask for a flush, or a rolled segment waits for one."""
        return self._local.needs_flush(now_ms) and self.failure is None and not self.is_closed

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below `up_to` (default: what is in the log now) is on disk. Blocks; for a thread.

        One fsync serves all that wait: whoever finds its records flushed by another's returns at once. Raises
        BrokerError kafka_storage_error; a failed fsync is never tried again, since the next one may claim success.
        """
        try:
            with self._local.flushing.lock:
                if up_to is not None and self._local.flushing.recovery_point >= up_to:
                    return
                self._state.check()
                try:
                    end = self._local.flush()
                except OSError as error:
                    self._state.fail(error, nothing_happened=True)  # too many files: then no fsync failed
        finally:
            self._local.flushed()
        state = self._state
        if self.config.flush_messages == EVERY_APPEND and state.high_watermark < end and not state.follows:
            state.high_watermark = end
            if state.subscribers:
                state.call_soon(state.wake)

    # ---- what leaves it

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset` (-1: the high watermark); returns the low watermark, the new log start offset.

        Raises BrokerError: offset_out_of_range, policy_violation for a topic without cleanup.policy delete.
        """
        delete_records(self._state, offset)
        return self._local.log_start_offset

    def delete_old_segments(self, now_ms: int) -> list[Path]:
        """Drop segments by retention; their files, renamed `.deleted`, may be removed after file.delete.delay.ms."""
        return delete_old_segments(self._state, now_ms)

    def replace_segments(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment], now_ms: int) -> list[Path]:
        """Put segments that the cleaner wrote into the place of `old`; the files, renamed `.deleted`, that may be
        removed after file.delete.delay.ms. Raises LookupError when the log has no longer all of them; BrokerError
        kafka_storage_error, unknown_topic_or_partition."""
        return replace_segments(self._state, cleaned, old, now_ms)

    # ---- housekeeping

    def update_config(self, config: LogConfig) -> None:
        """Replace the configuration; settings of segments apply from the next one on."""
        self.config = self._local.config = config
        waits = config.flush_messages != EVERY_APPEND and self.high_watermark < self._local.log_end_offset
        if waits and not self._state.follows:
            self._state.high_watermark = self._local.log_end_offset
            self._state.wake()

    def release_files(self) -> None:
        """Close the writer's three descriptors; the next append opens the files again. For logs that are idle;
        without effect while a flush is going on."""
        if self.failure is None and not self.is_closed:
            try:
                self._local.release_files()
            except (OSError, CorruptLog) as error:
                self._state.fail(error)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback`, without arguments, whenever the high watermark or the log start offset moves, or the log
        goes away or offline; once for one move however often it is subscribed."""
        self._state.subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._state.subscribers.discard(callback)

    # ---- the end

    def close(self) -> None:
        """Close cleanly, as a broker that shuts down: snapshot written, indexes trimmed, everything on disk. Blocks.
        Idempotent. Raises BrokerError kafka_storage_error."""
        if self.is_closed:
            return
        try:
            if self.failure is None:
                end = self._local.log_end_offset
                news = self._state.snapshots.take(end) or self.recovery_point < end
                active = self._local.active
                if active.writer is not None:
                    active.writer.on_become_inactive()
                    news = True
                if news:  # a log that nobody wrote to costs nothing here
                    with self._local.flushing.lock:
                        self._local.flush(whole=True)
                        active.close_writer()
        except (OSError, CorruptLog) as error:
            self._state.fail(error)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the files as they are: the log is deleted, or its disk has failed. Idempotent; waits for nothing."""
        self._state.close()

    def take_offline(self, error: OSError) -> None:
        """The log directory has failed elsewhere."""
        self._state.take_offline(error)

    def _failed(self, error: OSError) -> None:
        if self.on_failure is not None:
            self.on_failure(self, error)
