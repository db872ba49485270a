"""The log of one partition: appends by its one writer, reads by anybody, and the offsets that bound both (UnifiedLog).

Threads: everything that changes a log happens in one thread (the event loop's), but for `flush`, which blocks and is
meant for another one. `read` and the lookups may be called from any thread. What an append changes is changed in
Kafka's order: the .log and its indexes, the log end offset, producer state, the transaction index, the high watermark.

An I/O error takes the log offline: from then on every operation raises kafka_storage_error, as a broker whose log
directory has failed answers. What was acknowledged before stays in the files.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.append_validation import ValidatedBatch
from kafkalog_broker.storage.append.batch_builder import build_batch, parsed_batch
from kafkalog_broker.storage.partition import log_time, retention
from kafkalog_broker.storage.partition.file_handles import FileHandles, FileSlice, is_passing
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.loaded_log import LoadedLog
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_read import FoundRange, ReadResult
from kafkalog_broker.storage.partition.log_segment import ActiveSegment, LogSegment
from kafkalog_broker.storage.partition.log_time import TimestampAndOffset
from kafkalog_broker.storage.partition.producer_state import AppendFacts, LastRecord, Marker, Producer, ProducerState
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.log.format import layout, names
from kafkalog_spark.log.format.layout import ControlType
from kafkalog_spark.log.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    write_partition_metadata,
)
from kafkalog_spark.log.format.transaction_index import AbortedTransaction, collect_aborted
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, control_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog_broker.config.log_config import LogConfig
    from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_EVERY_APPEND = 1
"""The value of flush.messages with which only what is on disk is acknowledged and shown to consumers."""

_HANDLES = FileHandles()  # one bound for all logs of a process


class AppendInfo(NamedTuple):
    """What an append did. log_append_time_ms: -1 with CreateTime. duplicate: the offsets are those of the batch that
    the producer had sent before; nothing was appended."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogIdentity(NamedTuple):
    """Which partition a log is of."""

    topic: str
    partition: int
    topic_id: UUID


def _call(function: Callable[[], None]) -> None:
    function()


class Log:
    """Make it with `create` for a new partition, or from what `log_loader.load_log` found in a directory.

    config: replaced as a whole by `update_config`. call_soon: how `flush`, in its thread, hands the wake-up of
    subscribers to the thread they live in (an event loop's call_soon_threadsafe). on_failure: told, once and through
    call_soon, of the error that took the log offline.
    """

    def __init__(
        self,
        identity: LogIdentity,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
        *,
        call_soon: Callable[[Callable[[], None]], object] = _call,
        on_failure: Callable[[Log, OSError], None] | None = None,
        handles: FileHandles = _HANDLES,
        jitter: random.Random | None = None,
    ) -> None:
        self.topic, self.partition, self.topic_id = identity
        self.config = config
        self.directory = loaded.directory
        self.log_start_offset = loaded.log_start_offset
        self.failure: OSError | None = None
        self.is_closed = False
        self.on_failure = on_failure
        self.call_soon = call_soon
        self._local = LocalLog(
            loaded.directory, config, loaded.base_offsets, loaded.log_end_offset, loaded.recovery_point, now_ms,
            handles, jitter or random.Random(),
        )  # fmt: skip
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self.appended_bytes = 0
        """Bytes appended since the log was opened; never less than before, whatever retention takes."""
        self._last_snapshot = -1
        self._subscribers: set[Callable[[], None]] = set()
        # One replica: whatever was in the log when it was opened is as replicated as it will ever be.
        self.high_watermark = loaded.log_end_offset

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
        """A new, empty log in `directory`, which is made. Raises FileExistsError when it holds a segment, OSError.

        sync: topic id and leader epoch are on disk on return.
        """

        directory.mkdir(parents=True, exist_ok=True)
        write_partition_metadata(directory / PARTITION_METADATA_FILE, PartitionMetadata(identity.topic_id), sync=sync)
        epochs = LeaderEpochs(directory)
        epochs.assign(leader_epoch, log_start_offset, sync=sync)
        ActiveSegment.create(directory, log_start_offset, max_index_size=config.segment_index_bytes).close()
        loaded = LoadedLog(
            directory=directory, base_offsets=[log_start_offset], log_start_offset=log_start_offset,
            log_end_offset=log_start_offset, recovery_point=log_start_offset, epochs=epochs,
            producers=ProducerState(log_start_offset),
        )  # fmt: skip
        return cls(identity, config, loaded, now_ms, **options)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<Log {self.name} {self.log_start_offset}..{self._local.log_end_offset}>"

    # ---- what it is

    @property
    def name(self) -> str:
        """`topic-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def log_end_offset(self) -> int:
        """LEO: the offset of the next record."""
        return self._local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """LSO: the high watermark, or the first offset of the oldest transaction not ended below it."""
        high_watermark = self.high_watermark
        unstable = self._producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    @property
    def leader_epoch(self) -> int:
        """The epoch that this log's leader, always this broker, writes with."""
        return max(self._epochs.latest, 0)

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
        return self._producers

    def producers(self) -> list[Producer]:
        """What is known of the producers, for DescribeProducers."""
        return self._producers.producers()

    # ---- appending

    def append(self, batch: ValidatedBatch, now_ms: int) -> AppendInfo:
        """Append a producer's batch: into the page cache, not further. Synchronous.

        Raises BrokerError: record_list_too_large, the errors of ProducerState.check_append, kafka_storage_error.
        """
        return self._append(batch, now_ms, from_client=True, marker=None)

    def append_records(
        self, records: bytes | memoryview | pa.Table | Iterable[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> AppendInfo:
        """Append the broker's own records: one v2 batch that is right, an Arrow table (columns as record_encoder wants
        them), or (key, value) pairs. They are not validated again."""
        if isinstance(records, (bytes, bytearray, memoryview)):
            return self._append(parsed_batch(records), now_ms, from_client=False, marker=None)
        if hasattr(records, "schema"):
            return self._append_table(records, now_ms)
        return self._append(build_batch(list(records), now_ms), now_ms, from_client=False, marker=None)

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
            parsed_batch(marker.data), now_ms, from_client=False,
            marker=Marker(control_type, coordinator_epoch, transaction_version),
        )  # fmt: skip

    def _append_table(self, table: pa.Table, now_ms: int) -> AppendInfo:
        from kafkalog_spark.log.write.record_encoder import BatchParams, encode_batches

        params = BatchParams(leader_epoch=self.leader_epoch)
        first = self._local.log_end_offset
        for encoded in encode_batches(table, first, params, now_ms):
            self._append(parsed_batch(encoded.data), now_ms, from_client=False, marker=None)
        return AppendInfo(first, self._local.log_end_offset - 1, -1, self.log_start_offset)

    def _append(self, batch: ValidatedBatch, now_ms: int, *, from_client: bool, marker: Marker | None) -> AppendInfo:
        self._check_online()
        data = batch.data
        base_offset = self._local.log_end_offset
        last_offset = base_offset + batch.record_count - 1
        if len(data) > self.config.segment_bytes:
            raise BrokerError(
                ErrorCode.record_list_too_large,
                f"a batch of {len(data)} bytes, segment.bytes of the topic is {self.config.segment_bytes}",
                topic_partition=self.name,
            )
        epoch = self.leader_epoch
        _BASE_OFFSET.pack_into(data, layout.OFFSET_AT, base_offset)
        _LEADER_EPOCH.pack_into(data, layout.LEADER_EPOCH_AT, epoch)
        encoded = EncodedBatch(data, base_offset, last_offset, batch.max_timestamp, epoch, batch.record_count)  # type: ignore[arg-type]
        try:
            if epoch != self._epochs.latest:
                self._epochs.assign(epoch, base_offset)
            if self._local.is_time_to_roll(encoded, now_ms):
                self._roll(now_ms)
            facts = None
            if batch.producer_id >= 0:
                facts = AppendFacts(
                    batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, base_offset,
                    last_offset, batch.max_timestamp, batch.is_transactional, marker is not None, marker,
                )  # fmt: skip
                known = self._producers.check_append(facts, from_client=from_client)
                if known is not None:
                    return AppendInfo(
                        known.base_offset, known.last_offset,
                        known.timestamp if batch.log_append_time_ms >= 0 else -1, self.log_start_offset, True,
                    )  # fmt: skip
            segment = self._local.append(encoded)
            self.appended_bytes += len(data)
            if facts is not None:
                aborted = self._producers.appended(facts)
                if aborted is not None:
                    segment.add_aborted(aborted)
            else:
                self._producers.end_offset = last_offset + 1
        except (OSError, CorruptLog) as error:
            self._fail(error, nothing_happened=self._local.log_end_offset == base_offset)
        self._local.flushing.appended(now_ms)
        if self.config.flush_messages != _EVERY_APPEND:
            self.high_watermark = last_offset + 1
            self._wake()
        if marker is not None:
            self._producers.forget_ended(self.high_watermark)  # or nobody does while nobody reads
        return AppendInfo(base_offset, last_offset, batch.log_append_time_ms, self.log_start_offset)

    # ---- rolling

    def roll(self, now_ms: int) -> bool:
        """Begin a new segment at the log end offset; False while the active one is empty."""
        self._check_online()
        if not self._local.active.size:
            return False
        try:
            self._roll(now_ms)
        except (OSError, CorruptLog) as error:
            self._fail(error, nothing_happened=True)
        return True

    def _roll(self, now_ms: int) -> None:
        self._local.roll(now_ms)
        self._producers.end_offset = self._local.log_end_offset
        self._snapshot_producers()

    def _snapshot_producers(self) -> bool:
        """Take the producer snapshot of the log end offset, once (ProducerStateManager.takeSnapshot); the next flush,
        which a roll always asks for, writes it. False when it is there already, or nothing was ever appended."""
        offset = self._local.log_end_offset
        path = self._snapshot_path(offset)
        if offset <= self._last_snapshot or offset == 0 or path.exists():
            return False
        self._last_snapshot = offset
        self._local.flushing.snapshot_taken(path, self._producers.picture())
        return True

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / (names.segment_name(offset) + names.PRODUCER_SNAPSHOT_SUFFIX)

    # ---- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush, or a rolled segment waits for one."""
        if self.failure is not None or self.is_closed:
            return False
        return self._local.needs_flush(now_ms)

    def flush(self, up_to: int | None = None) -> None:
        """Return when everything below `up_to` (default: what is in the log now) is on disk. Blocks; for a thread.

        One fsync serves all that wait: whoever finds its records flushed by another's returns at once. Raises
        BrokerError kafka_storage_error; a failed fsync is never tried again, since the next one may claim success.
        """
        try:
            with self._local.flushing.lock:
                if up_to is not None and self._local.flushing.recovery_point >= up_to:
                    return
                self._check_online()
                try:
                    end = self._local.flush()
                except OSError as error:
                    self._fail(error, nothing_happened=True)  # too many files: then no fsync failed
        finally:
            self._local.flushed()
        if self.config.flush_messages == _EVERY_APPEND and self.high_watermark < end:
            self.high_watermark = end
            if self._subscribers:
                self.call_soon(self._wake)

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> list[bytes]:
        """Whole batches from the one that holds `offset` on, all below `up_to`, at most `max_bytes` of them.

        at_least_one: the first one comes even when it is larger. Empty at `up_to` and behind it. Raises BrokerError:
        offset_out_of_range, kafka_storage_error.
        """
        return self.read_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one).chunks

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """As read, with the offset behind what was read."""
        found = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(one) for one in found.slices], found.next_offset)

    def read_slice(self, found: FileSlice) -> bytes:
        """The bytes that find_range has found. Raises BrokerError kafka_storage_error."""
        try:
            return found.read()
        except OSError as error:
            self._fail(error, nothing_happened=True)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """As read, but only where those batches lie: their bytes can be read later, whatever happens to the log."""
        while True:
            self.check_fetch_offset(offset)
            swaps = self._local.swaps
            try:
                found = self._local.find_range(offset, max_bytes, up_to, at_least_one)
                # Else retention took the beginning meanwhile, or compaction the file.
                if offset >= self.log_start_offset and swaps == self._local.swaps:
                    return found
            except FileNotFoundError as error:
                if self.is_closed or (offset >= self.log_start_offset and swaps == self._local.swaps):
                    self._fail(error)  # the file was not ours to lose
            except (OSError, CorruptLog) as error:
                if swaps == self._local.swaps or is_passing(error):
                    self._fail(error, nothing_happened=True)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless the log holds `offset`, or will next."""
        self._check_online()
        if not self.log_start_offset <= offset <= self._local.log_end_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, the log goes from {self.log_start_offset} to {self._local.log_end_offset}",
                topic_partition=self.name,
                offset=offset,
            )

    def aborted_transactions(self, offset: int, up_to: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with records in [offset, up_to), by the transaction indexes. Raises
        BrokerError."""
        self._check_online()
        found: list[AbortedTransaction] = []
        try:
            for segment in self._local.segments_from(offset):
                search = collect_aborted(segment.aborted(), offset, up_to)
                found += search.transactions
                if search.complete:
                    break
        except (OSError, CorruptLog) as error:
            self._fail(error, nothing_happened=True)
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """(timestamp, offset, leader epoch) of the first record with a timestamp of at least `timestamp` ms."""
        self._check_online()
        try:
            return log_time.offset_for_timestamp(self._local.segments, timestamp, self.log_start_offset)
        except (OSError, CorruptLog) as error:
            self._fail(error, nothing_happened=True)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """As offset_for_timestamp, for the largest timestamp; None when no record has one."""
        self._check_online()
        try:
            return log_time.max_timestamp_offset(self._local.segments)
        except (OSError, CorruptLog) as error:
            self._fail(error, nothing_happened=True)

    # ---- leader epochs

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset), (-1, -1) when it is not known: OffsetForLeaderEpoch's answer."""
        return self._epochs.end_offset_for(epoch, self._local.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when it is not known."""
        return self._epochs.epoch_of(offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless `epoch`, what a client takes for the current one, is; -1 is never wrong."""
        current = self.leader_epoch
        if epoch in (-1, current):
            return
        code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
        raise BrokerError(
            code, f"leader epoch {epoch} was asked for, the current one is {current}", topic_partition=self.name
        )

    # ---- the log's beginning

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset` (-1: the high watermark); returns the low watermark, the new log start offset.

        Raises BrokerError: offset_out_of_range, policy_violation for a topic without cleanup.policy delete.
        """
        self._check_online()
        if "delete" not in self.config.cleanup_policy:
            raise BrokerError(
                ErrorCode.policy_violation,
                "records are deleted only of topics whose cleanup.policy contains delete",
                topic_partition=self.name,
            )
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, records can be deleted up to the high watermark {self.high_watermark}",
                topic_partition=self.name,
                offset=offset,
            )
        self._move_log_start(wanted)
        return self.log_start_offset

    def _move_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        try:
            self._epochs.truncate_from_start(offset)
        except OSError as error:
            self._fail(error)
        self._producers.on_log_start_offset(offset)
        self._wake()

    def delete_old_segments(self, now_ms: int) -> list[Path]:
        """Drop what retention says; the files, renamed `.deleted`, that may be removed after file.delete.delay.ms."""
        self._check_online()
        try:
            deletion = retention.decide(
                [
                    retention.SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp)
                    for segment in self._local.segments
                ],
                retention.RetentionPolicy(
                    self.config.retention_ms, self.config.retention_bytes, "delete" in self.config.cleanup_policy
                ),
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self._local.log_end_offset,
                now_ms=now_ms,
            )
            if not deletion:
                return []
            if deletion.roll_first:
                self._roll(now_ms)
            self._move_log_start(deletion.log_start_offset)
            gone: list[Path] = []
            for segment, files in self._local.remove_first(deletion.count):
                gone += files + self._remove_snapshot(segment.base_offset)
            return gone
        except OSError as error:
            self._fail(error)

    def _remove_snapshot(self, offset: int) -> list[Path]:
        """A producer snapshot goes with the segment that begins where it was taken."""
        snapshot = self._snapshot_path(offset)
        self._local.flushing.forget_snapshot(snapshot)
        if not snapshot.exists():
            return []
        return [snapshot.rename(snapshot.with_name(snapshot.name + names.DELETED_SUFFIX))]

    # ---- compaction

    def last_records(self) -> dict[int, LastRecord]:
        """What each producer that the log knows wrote last: the cleaner keeps the header of that batch."""
        return self._producers.last_records()

    def replace_segments(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment], now_ms: int) -> list[Path]:
        """Put segments that the cleaner wrote into the place of `old`; the files, renamed `.deleted`, that may be
        removed after file.delete.delay.ms. Raises LookupError when the log has no longer all of them; BrokerError
        kafka_storage_error, unknown_topic_or_partition."""
        self._check_online()
        try:
            gone: list[Path] = []
            for segment, files in self._local.replace(old, cleaned, now_ms):
                gone += files
                if all(segment.base_offset != piece.base_offset for piece in cleaned):
                    gone += self._remove_snapshot(segment.base_offset)
            return gone
        except OSError as error:
            self._fail(error)

    # ---- housekeeping

    def update_config(self, config: LogConfig) -> None:
        """What changes for segments applies from the next one on."""
        self.config = self._local.config = config
        if config.flush_messages != _EVERY_APPEND and self.high_watermark < self._local.log_end_offset:
            self.high_watermark = self._local.log_end_offset
            self._wake()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; returns how many."""
        return self._producers.expire(now_ms, expiration_ms)

    def release_files(self) -> None:
        """Give the writer's three descriptors back; the next append opens the files again. For logs that are idle.

        Without effect while a flush is going on.
        """
        if self.failure is None and not self.is_closed:
            try:
                self._local.release_files()
            except (OSError, CorruptLog) as error:
                self._fail(error)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback`, without arguments, whenever the high watermark or the log start offset moves, or the log
        goes away or offline; once for one move however often it is subscribed."""
        self._subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)

    def _wake(self) -> None:
        if self._subscribers:
            for callback in tuple(self._subscribers):
                callback()

    # ---- the end

    def close(self) -> None:
        """Close cleanly, as a broker that shuts down: snapshot written, indexes trimmed, everything on disk. Blocks.
        Twice is harmless. Raises BrokerError kafka_storage_error."""
        if self.is_closed:
            return
        try:
            if self.failure is None:
                self._producers.end_offset = self._local.log_end_offset
                news = self._snapshot_producers() or self.recovery_point < self._local.log_end_offset
                active = self._local.active
                if active.writer is not None:
                    active.writer.on_become_inactive()
                    news = True
                if news:  # a log that nobody wrote to costs nothing here
                    with self._local.flushing.lock:
                        self._local.flush(whole=True)
                        active.close_writer()
        except (OSError, CorruptLog) as error:
            self._fail(error)
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of the files as they are: the partition is deleted, or its directory has failed. Idempotent; waits for
        nothing."""
        self.is_closed = True
        self._local.abandon()
        self._wake()
        self._subscribers.clear()

    def take_offline(self, error: OSError) -> None:
        """The log directory has failed elsewhere."""
        if self.failure is None:
            self.failure = error
            self.call_soon(self._wake)

    def _check_online(self) -> None:
        if self.failure is not None:
            raise BrokerError(
                ErrorCode.kafka_storage_error, f"the log is offline: {self.failure}", topic_partition=self.name
            )
        if self.is_closed:
            raise BrokerError(
                ErrorCode.unknown_topic_or_partition, "the log has been closed", topic_partition=self.name
            )

    def _fail(self, error: OSError | CorruptLog, *, nothing_happened: bool = False) -> NoReturn:
        """Take the log offline and raise what the client gets. nothing_happened: the log is what it was before the
        operation, so that it stays online where only descriptors are lacking; clients try again."""
        if self.is_closed:
            self._check_online()
        if nothing_happened and is_passing(error):
            raise BrokerError(
                ErrorCode.kafka_storage_error,
                f"too many files are open: {error}; try again, and raise the limit of open files (ulimit -n)",
                topic_partition=self.name,
            ) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        if self.failure is None:
            self.take_offline(failure)
            told = self.on_failure
            if told is not None:
                self.call_soon(lambda: told(self, failure))
        raise BrokerError(
            ErrorCode.kafka_storage_error, f"the log went offline: {error}", topic_partition=self.name
        ) from error
