"""Tiered storage of this broker: what is copied, deleted and read remotely, and when (Kafka's RemoteLogManager).

Everything runs in the event loop's thread. What waits for remote storage runs in threads of its own kind: those that
copy, those that delete, and those that read never wait for each other, and nothing else waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import is_tiered
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.quotas.client_quotas import TokenBucket, Windows
from kafkalog_broker.remote.remote_log_metadata_manager import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    RemoteLogMetadataCache,
    RemoteLogMetadataManager,
)
from kafkalog_broker.remote.remote_log_reader import MOST_BYTES, RemoteLogReader, RemoteRead
from kafkalog_broker.remote.restore import restore_lineage, restore_log, restore_topics
from kafkalog_broker.remote.segments_to_move import expired_segments, prepared_copy, segments_to_copy
from kafkalog_broker.runtime.byte_budget import ByteBudget, Lease
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.memory_trim import IdleTrim
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import SCAN_READ, FileSlice
from kafkalog_broker.storage.partition.offset_lookup import TimestampAndOffset
from kafkalog_broker.storage.topic_registry import Topic, TopicRegistry
from kafkalog_spark.errors import KafkalogError, RemoteResourceNotFound, RemoteStorageError
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.log.remote.remote_storage import LogSegmentData, RemoteStorage
from kafkalog_spark.log.tiered.remote_log_metadata import PartitionDeleteState
from kafkalog_spark.log.tiered.remote_names import RemoteSegment, TopicIdPartition

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
STOP_S = 2.0
"""Seconds for which a stop waits for copies and deletions, before the logs are closed."""
THREAD_NAMES = "kafkalog-remote-"  # how the names of all threads begin that wait for remote storage
_THREADS = 64  # threads of each kind, at most; the properties of Kafka say how many of them are used
_STOPS = "the broker stops, and reads no remote storage any more"
_NAP_S = 0.05  # how long a copy that the quota holds up waits before it looks again, and whether it is to end
_IN_FLIGHT = 12 << 20
"""Bytes of records that all reads hold: they count twice during a read, then once until the peer has received them."""
_DELETED_AT_ONCE = 100  # segments whose deletion is one event: a topic of 10,000 takes a hundred flushes, not 20,000


class RemoteQuota:
    """Bytes a second that are copied, or fetched (RLMQuotaManager). limit: asked anew each time. windows, of `seconds`
    each: as much as all but one of them allow may come at once, as Kafka's rate is an average over its windows.
    clock_ms: monotonic. Threads share it."""

    def __init__(self, limit: Callable[[], int], windows: int, seconds: int, clock_ms: Callable[[], int]) -> None:
        self._bucket = TokenBucket(Windows(max(windows - 1, 1), seconds * 1000))
        self._limit, self._clock_ms, self._lock = limit, clock_ms, threading.Lock()

    def record(self, size: int) -> None:
        with self._lock:
            self._bucket.record(size, self._limit(), self._clock_ms())

    def wait_ms(self) -> int:
        """How long to wait until more may be moved; 0 while the rate is not above the limit."""
        with self._lock:
            return self._bucket.throttle_ms(self._limit(), self._clock_ms())


@dataclass(slots=True)
class RemoteCounts:
    """Since the start (RemoteStorageMetrics, BrokerTopicMetrics)."""

    copy_requests: int = 0
    copy_errors: int = 0
    copy_bytes: int = 0
    fetch_requests: int = 0
    fetch_errors: int = 0
    fetch_bytes: int = 0
    delete_requests: int = 0
    delete_errors: int = 0


@dataclass(slots=True, eq=False)
class RemotePartition:
    """A partition with remote segments, or one that is to have some. log: None once its topic is deleted. copying:
    segments that are being copied. copy_lag, delete_lag: (segments, bytes) that wait to be copied, and deleted.
    from_future: the segment whose timestamp in the future was reported."""

    remote: RemoteLogMetadataCache
    log: Log | None = None
    copying: set[UUID] = field(default_factory=set)
    failures: int = 0
    next_try_ms: int = 0
    copy_lag: tuple[int, int] = (0, 0)
    delete_lag: tuple[int, int] = (0, 0)
    from_future: UUID | None = None

    def count_lag(self, log: Log) -> bool:
        waiting = [segment.size for segment, _ in segments_to_copy(log)]
        self.copy_lag = len(waiting), sum(waiting)
        return bool(waiting)


class _Tasks:
    """Work on partitions, `limit()` of them at a time; one that has work waiting or under way is not given more."""

    def __init__(self, work: Callable[[RemotePartition], Awaitable[None]], limit: Callable[[], int], name: str) -> None:
        self._work, self._limit = work, limit
        self._waiting: dict[RemotePartition, None] = {}
        self._running: dict[RemotePartition, asyncio.Task[None]] = {}
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._is_stopped = False

    def add(self, partition: RemotePartition) -> None:
        if partition not in self._running:
            self._waiting[partition] = None
        self._begin()

    async def stop(self, until: float) -> None:
        """Return when no task runs; those that do not end by `until`, in the loop's time, are cancelled.

        A thread that waits for a store then goes on alone. What it does is not recorded, so that the next start does it
        again.
        """
        self._is_stopped = True
        self._waiting.clear()
        running = list(self._running.values())
        if running:
            _, late = await asyncio.wait(running, timeout=max(until - asyncio.get_running_loop().time(), 0))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._waiting and not self._is_stopped and len(self._running) < self._limit():
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            self._running[partition] = asyncio.create_task(self._run(partition))

    async def _run(self, partition: RemotePartition) -> None:
        try:
            await self._work(partition)
        except Exception:  # noqa: BLE001 - nobody waits for it: this is where it shows
            _log.exception("work on the remote segments of %s failed", partition.remote.partition)
        finally:
            del self._running[partition]
            self._begin()


class RemoteLogManager:
    """config: the broker's, asked anew each time. call: runs something that waits for a disk in a thread. stay_above:
    is given producer ids of logs that were lost. deleted: ids of topics whose deletion a crash has interrupted."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        storage: RemoteStorage,
        metadata: RemoteLogMetadataManager,
        *,
        logs: LogManager,
        topics: TopicRegistry,
        clock: Clock,
        call: Callable[..., Awaitable[Any]],
        stay_above: Callable[[Iterable[int]], None] = lambda ids: None,
        deleted: Collection[UUID] = (),
        jitter: random.Random | None = None,
    ) -> None:
        self._config, self._storage, self.metadata = config, storage, metadata
        self._logs, self._topics, self._clock, self._call = logs, topics, clock, call
        self._stay_above = stay_above
        self._deleted = deleted
        self._jitter = jitter or random.Random()
        self.partitions: dict[tuple[UUID, int], RemotePartition] = {}
        self.counts = RemoteCounts()
        now = config()
        self._copy_quota = RemoteQuota(
            lambda: config().remote_log_manager_copy_max_bytes_per_second,
            now.remote_log_manager_copy_quota_window_num, now.remote_log_manager_copy_quota_window_size_seconds,
            clock.monotonic_ms,
        )  # fmt: skip
        self._fetch_quota = RemoteQuota(
            lambda: config().remote_log_manager_fetch_max_bytes_per_second,
            now.remote_log_manager_fetch_quota_window_num, now.remote_log_manager_fetch_quota_window_size_seconds,
            clock.monotonic_ms,
        )  # fmt: skip
        self._copying = _Tasks(
            self._copy, lambda: config().remote_log_manager_copier_thread_pool_size, "kafkalog-remote-copy"
        )
        self._expiring = _Tasks(
            self._expire, lambda: config().remote_log_manager_expiration_thread_pool_size, "kafkalog-remote-delete"
        )
        self._reader = RemoteLogReader(storage)
        self._reads: set[asyncio.Task[Any]] = set()
        self._readers = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkalog-remote-read")
        self._trim = IdleTrim(self._readers.submit)
        self.in_flight = ByteBudget(_IN_FLIGHT)
        self._reader_threads = now.remote_log_reader_threads
        self._reading_turn = asyncio.Semaphore(self._reader_threads)
        self._is_stopped = False  # what is being copied ends before its next piece

    # ---- start and stop

    async def start(self, topic: Topic, settle: Callable[[], None] = lambda: None) -> None:
        """Learn what there is remotely from `topic`, which is `__remote_log_metadata`, and make logs again that end
        before their remote segments. Before the broker serves. settle: called, in a thread, when the remote segments
        are known and nothing was done about them. Raises BrokerError, KafkalogError."""
        await self._call(self._load, topic, settle)
        for cache in list(self.metadata.partitions.values()):
            if cache.partition.topic_id in self._deleted:
                try:
                    await self.metadata.mark_deleted([cache.partition], PartitionDeleteState.DELETE_PARTITION_MARKED)
                except BrokerError as error:
                    _log.error("remote segments of %s, which was deleted, stay: %s", cache.partition, error)

    def _load(self, topic: Topic, settle: Callable[[], None]) -> None:
        self.metadata.load(topic, self._name_of)
        settle()
        restore_topics(self.metadata, self._topics, self._logs, self._deleted)
        for known in self._topics:
            if is_tiered(known.configs):
                for number in range(known.partitions):
                    self._open(known, number)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _open(self, topic: Topic, number: int) -> None:
        """Open a log and restore it from its remote segments where that is necessary.

        A log that cannot be restored goes offline, because it must not be written to from another offset on. The other
        partitions are served.
        """
        try:
            log = self._logs.get(topic.name, number)
        except BrokerError as error:
            _log.error("%s", error)
            return
        if log is None:
            return
        try:
            why = self.metadata.why_unknown(log.identity)
            if why is not None:
                raise KafkalogError(why)
            remote = self.metadata.partitions.get((topic.id, number))
            if remote is not None:
                restore_lineage(log, remote, self._storage)
                gone, producer_ids = restore_log(log, remote, self._storage, self._clock.now_ms())
                self._logs.remove_later(gone, log.config)
                self._stay_above(producer_ids)
            self._adopt(log)
        except Exception as error:  # noqa: BLE001 - one partition must not keep the broker from serving the others
            known = isinstance(error, KafkalogError | OSError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            if log.failure is None:
                log.take_offline(OSError(f"its remote segments cannot be taken into account: {reason}"))
            _log.error(
                "%s is offline until the next start: its remote segments cannot be taken into account: %s",
                log.name, reason, exc_info=None if known else error,
            )  # fmt: skip

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config().remote_log_manager_task_interval_ms / 1000)
            try:
                await self.run_due()
            except Exception:  # noqa: BLE001 - the next round may go well
                _log.exception("looking for segments to copy failed and is tried again")

    def begin_stop(self) -> None:
        """Refuse reads from now on, and end those that wait; requests to the store are not repeated any more.

        Before the network stops: it waits for the responses to requests that have come.
        """
        self._is_stopped = True
        self._trim.cancel()
        self._storage.stop_retries()
        for read in self._reads:
            read.cancel()

    async def stop(self) -> None:
        """Return when nothing is copied or deleted any more, soon after STOP_S at most; a copy ends before its next
        piece."""
        self.begin_stop()
        until = asyncio.get_running_loop().time() + STOP_S
        await asyncio.gather(self._copying.stop(until), self._expiring.stop(until))
        self._readers.shutdown(wait=False, cancel_futures=True)

    # ---- partitions

    def _adopt(self, log: Log) -> RemotePartition:
        """Know a log's remote side from now on, and where the log starts if a crash came before the checkpoint of that
        (maybeUpdateLogStartOffsetOnBecomingLeader). Raises BrokerError."""
        key = (log.topic_id, log.partition)
        partition = self.partitions.get(key)
        if partition is not None and partition.log is log:
            return partition
        remote = self.metadata.of(log.identity)
        lineage = log.epochs.entries
        log.highest_offset_in_remote_storage = remote.highest_offset(lineage, log.log_end_offset)
        first = remote.first_offset(lineage)
        begins = log.segments[0].base_offset
        if first is not None or (lineage and _has_epochs(log)):  # they may be cut further than the checkpoint says
            begins = max(begins if first is None else min(first, begins), lineage[0].start_offset)
        log.move_log_start(min(begins, log.high_watermark))
        partition = self.partitions.setdefault(key, RemotePartition(remote))
        partition.log = log  # what an earlier object of the log began to copy is still being copied
        return partition

    async def run_due(self) -> None:
        """Look at all partitions that have, or are to have, remote segments."""
        turn = TimeSlice()
        async for topic in turn.spread(self._topics):
            if is_tiered(topic.configs):
                async for number in turn.spread(range(topic.partitions)):
                    self._look_at(topic, number)
        async for key, cache in turn.spread(list(self.metadata.partitions.items())):
            if len(cache) or cache.is_deleted:
                partition = self.partitions.setdefault(key, RemotePartition(cache))
                self._find_log(partition)
                self._expiring.add(partition)

    def _find_log(self, partition: RemotePartition) -> None:
        """Find the log of a topic that left remote storage before the start: a crash may have interrupted the deletion
        of its segments."""
        name, topic_id, number = partition.remote.partition
        topic = self._topics.by_id(topic_id)
        if partition.log is not None or topic is None or is_tiered(topic.configs):
            return
        try:
            partition.log = self._logs.get(name, number)
        except BrokerError as error:
            _log.warning("remote segments of %s-%d cannot be deleted: %s", name, number, error)

    def _look_at(self, topic: Topic, number: int) -> None:
        try:
            log = self._logs.get(topic.name, number)
            if log is None or log.failure is not None:
                return
            partition = self._adopt(log)
        except BrokerError as error:
            _log.warning("%s-%d cannot be copied: %s", topic.name, number, error)
            return
        if partition.count_lag(log) and self._clock.monotonic_ms() >= partition.next_try_ms:
            self._copying.add(partition)

    def topic_changed(self, topic: Topic) -> None:
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                self._expiring.add(partition)

    async def topic_deleted(self, topic: Topic) -> None:
        """A topic is gone from the registry: so are its remote segments."""
        partitions = [TopicIdPartition(topic.name, topic.id, number) for number in range(topic.partitions)]
        await self.metadata.mark_deleted(partitions, PartitionDeleteState.DELETE_PARTITION_MARKED)
        for number in range(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if partition is not None:
                partition.log = None
                self._expiring.add(partition)

    # ---- copying

    async def _copy(self, partition: RemotePartition) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (log := partition.log) is not None and not self._is_stopped and not log.is_closed:
                segment, until = next(segments_to_copy(log), (None, 0))
                if segment is None:
                    break
                self.counts.copy_requests += 1
                if log.synced_offset < until:
                    await self._call(log.flush)
                remote, data = await self._call(
                    prepared_copy, log, segment, until, self.metadata.broker_id, self._clock.now_ms()
                )
                partition.copying.add(remote.segment_id)
                try:
                    await self.metadata.add(remote)
                    custom = await loop.run_in_executor(self._copying.threads, self._write, remote, data)
                    if partition.log is None or log.is_closed:
                        break
                    await self.metadata.update([remote], COPY_FINISHED, custom)
                finally:
                    partition.copying.discard(remote.segment_id)
                log.highest_offset_in_remote_storage = max(log.highest_offset_in_remote_storage, until - 1)
                self.counts.copy_bytes += segment.size
                partition.failures = 0
        except (KafkalogError, OSError) as error:
            if not self._is_stopped:
                self.counts.copy_errors += 1
                self._back_off(partition)
                _log.warning("%s is not copied, and tried again: %s", partition.remote.partition, error)
        finally:
            if partition.log is not None:
                partition.count_lag(partition.log)
            self._expiring.add(partition)  # what was begun and not finished goes

    def _write(self, segment: RemoteSegment, data: LogSegmentData) -> bytes | None:
        """The custom metadata of the copy. Blocks. Raises as RemoteStorage.copy."""
        custom = self._storage.copy(segment, data, self._throttle)
        most = self._config().remote_log_metadata_custom_metadata_max_bytes
        if custom is not None and len(custom) > most:
            raise RemoteStorageError(
                f"the custom metadata of {segment} has {len(custom)} bytes, "
                f"remote.log.metadata.custom.metadata.max.bytes is {most}"
            )
        return custom

    def _throttle(self, size: int) -> None:
        while not self._is_stopped and (wait_ms := self._copy_quota.wait_ms()):
            time.sleep(min(wait_ms / 1000, _NAP_S))
        if self._is_stopped:
            raise RemoteStorageError("the broker stops")
        self._copy_quota.record(size)

    def _back_off(self, partition: RemotePartition) -> None:
        config = self._config()
        base, most = (
            config.remote_log_manager_task_retry_backoff_ms, config.remote_log_manager_task_retry_backoff_max_ms,
        )  # fmt: skip
        wait = min(base * 2 ** min(partition.failures, 30), most)
        jitter = config.remote_log_manager_task_retry_jitter
        partition.failures += 1
        partition.next_try_ms = self._clock.monotonic_ms() + int(wait * self._jitter.uniform(1 - jitter, 1 + jitter))

    # ---- deletion

    async def _expire(self, partition: RemotePartition) -> None:
        remote, log = partition.remote, partition.log
        if self.metadata.why_unknown(remote.partition) is not None:
            return  # a copy that looks unfinished may be finished by an event that cannot be read
        try:
            unfinished = [
                segment
                for segment in remote.in_state(COPY_STARTED, DELETE_STARTED)
                if segment.segment_id not in partition.copying
            ]
            await self._delete(partition, unfinished)
            if remote.is_deleted:
                await self._delete(partition, remote.in_state(COPY_FINISHED))
                if not len(remote):
                    done = PartitionDeleteState.DELETE_PARTITION_FINISHED
                    await self.metadata.mark_deleted([remote.partition], done)
                    self.partitions.pop((remote.partition.topic_id, remote.partition.partition), None)
            elif log is None or log.is_closed or log.failure is not None:
                return
            elif not log.config.remote_storage_enable:
                if log.config.remote_log_delete_on_disable:
                    log.move_log_start(log.local_log_start_offset)
                    log.highest_offset_in_remote_storage = -1
                    # All before the first object goes: a topic that comes back to remote storage after a crash would
                    # otherwise begin with the segments that are left.
                    finished = remote.in_state(COPY_FINISHED)
                    for at in range(0, len(finished), _DELETED_AT_ONCE):
                        await self.metadata.update(finished[at : at + _DELETED_AT_ONCE], DELETE_STARTED)
                    await self._delete(partition, finished)
            else:
                not_copied = log.highest_offset_in_remote_storage + 1
                decide = partial(
                    expired_segments, remote, log.config, log.epochs.entries, self._clock.now_ms(),
                    log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset,
                    only_local_bytes=sum(one.size for one in log.segments if one.base_offset >= not_copied),
                )  # fmt: skip
                expired = await asyncio.get_running_loop().run_in_executor(self._expiring.threads, decide)
                if expired.log_start_offset is not None:
                    log.check()
                    log.move_log_start(min(expired.log_start_offset, log.high_watermark))
                await self._delete(partition, expired.segments)
                self._report_future(partition, expired.from_future)
        except (KafkalogError, OSError) as error:
            if self._is_stopped:
                return
            self.counts.delete_errors += 1
            _log.warning("remote segments of %s are not deleted, and tried again: %s", remote.partition, error)

    def _report_future(self, partition: RemotePartition, segment: RemoteSegment | None) -> None:
        """Name a remote segment that retention.ms does not remove because of a timestamp in the future, once."""
        if segment is not None and partition.from_future != segment.segment_id:
            _log.warning(
                "the remote segment %s of %s has a record whose timestamp %d is in the future: retention.ms keeps it "
                "and all later ones until then. Remove them with DeleteRecords or retention.bytes; "
                "message.timestamp.after.max.ms refuses such records.",
                segment.name, partition.remote.partition, segment.max_timestamp,
            )  # fmt: skip
        partition.from_future = None if segment is None else segment.segment_id

    async def _delete(self, partition: RemotePartition, segments: list[RemoteSegment]) -> None:
        """DELETE_SEGMENT_STARTED before the first object goes, DELETE_SEGMENT_FINISHED after the last has gone."""
        loop = asyncio.get_running_loop()
        count, size = len(segments), sum(segment.size for segment in segments)
        partition.delete_lag = count, size
        for at in range(0, len(segments), _DELETED_AT_ONCE):
            some = segments[at : at + _DELETED_AT_ONCE]
            events = (partition.remote.event(segment.segment_id) for segment in some)
            begun = [event.segment for event in events if event is not None and event.state is not DELETE_STARTED]
            await self.metadata.update(begun, DELETE_STARTED)
            gone: list[RemoteSegment] = []
            try:
                for segment in some:
                    self.counts.delete_requests += 1
                    await loop.run_in_executor(self._expiring.threads, self._storage.delete, segment)
                    gone.append(segment)
                    count, size = partition.delete_lag = count - 1, size - segment.size
            finally:
                await self.metadata.update(gone, DELETE_FINISHED)

    # ---- reading

    async def read(
        self, log: Log, offset: int, max_bytes: int, *, at_least_one: bool, committed: bool,
        hold: Callable[[Lease], None] = Lease.release,
    ) -> RemoteRead | None:  # fmt: skip
        """Read remote records as RemoteLogReader.read does.

        Args:
            hold: takes the lease of the memory of the returned records, and releases it when they are gone.

        Returns:
            None if the read, or the wait for memory before it, takes longer than remote.fetch.max.wait.ms, or if the
            fetch quota is used up.

        Raises:
            BrokerError: offset_out_of_range; kafka_storage_error, which clients repeat, while the store fails or the
                broker stops; unknown_server_error for what is damaged or lost.
        """
        if self._fetch_quota.wait_ms():
            return None
        remote = self.metadata.of(log.identity)
        self.counts.fetch_requests += 1
        read = partial(
            self._reader.read, log, remote, offset, max_bytes, at_least_one=at_least_one, committed=committed
        )
        wait_ms = self._config().remote_fetch_max_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                lease = await self.in_flight.take(2 * max(min(max_bytes, MOST_BYTES), SCAN_READ))
            found = await self._in_reader(read, wait_ms, log, lease)
        except TimeoutError:
            return None
        lease.resize(len(found.records))
        hold(lease)
        self._fetch_quota.record(found.fetched_bytes)
        self.counts.fetch_bytes += len(found.records)
        return found

    async def offset_for_timestamp(self, log: Log, timestamp: int, timeout_ms: int = 0) -> TimestampAndOffset | None:
        """As RemoteLogReader.offset_for_timestamp.

        Args:
            log: Log to search.
            timestamp: Smallest timestamp of the wanted record, in ms.
            timeout_ms: Timeout of the request; at or below 0 remote.list.offsets.request.timeout.ms applies.

        Raises:
            BrokerError: request_timed_out, kafka_storage_error, unknown_server_error.
        """
        remote = self.metadata.partitions.get((log.topic_id, log.partition))
        if remote is None:
            local: TimestampAndOffset | None = await self._call(log.offset_for_timestamp, timestamp)
            return local
        look_up = partial(self._reader.offset_for_timestamp, log, remote, timestamp)
        try:
            wait_ms = timeout_ms if timeout_ms > 0 else self._config().remote_list_offsets_request_timeout_ms
            return await self._in_reader(look_up, wait_ms, log)
        except TimeoutError as error:
            raise log.error(ErrorCode.request_timed_out, str(error)) from error

    async def _in_reader(self, read: Callable[[], _T], wait_ms: int, log: Log, lease: Lease | None = None) -> _T:
        """Read in a thread, and wait for it at most `wait_ms`.

        After that, a read that has begun goes on, and leaves in the caches what it fetched for the next one; a read
        that waits for its turn is cancelled. lease: released when the read ends, unless its result is returned.

        Raises:
            TimeoutError: It takes longer.
            BrokerError: kafka_storage_error, unknown_server_error, or what `read` raises.
        """
        refusal = None
        if self._is_stopped:
            refusal = _STOPS
        elif len(self._reads) >= self._config().remote_log_reader_max_pending_tasks:
            self.counts.fetch_errors += 1
            refusal = f"{len(self._reads)} reads of remote storage wait already"
        if refusal is not None:
            if lease is not None:
                lease.release()
            raise log.error(ErrorCode.kafka_storage_error, refusal)
        begun = asyncio.Event()
        task = asyncio.create_task(self._read_in_turn(read, begun))
        self._reads.add(task)
        task.add_done_callback(self._read_ended)
        try:
            done, _ = await asyncio.wait([task], timeout=wait_ms / 1000)
            if not done:
                if not begun.is_set():
                    task.cancel()
                raise TimeoutError("remote storage does not answer in time")
            if task.cancelled():
                raise log.error(ErrorCode.kafka_storage_error, _STOPS)
            try:
                return task.result()
            except BrokerError:
                raise
            except (KafkalogError, OSError) as error:
                _log.warning("%s cannot be read from remote storage: %s", log.name, error)
                # Kafka's code for both is UNKNOWN_SERVER_ERROR, which librdkafka hands to the application.
                is_lost = isinstance(error, RemoteResourceNotFound)
                is_away = isinstance(error, RemoteStorageError | OSError) and not is_lost
                code = ErrorCode.kafka_storage_error if is_away else ErrorCode.unknown_server_error
                raise log.error(code, str(error)) from error
        except BaseException:
            if lease is not None:
                task.add_done_callback(lambda _: lease.release())
            raise

    def _read_ended(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # no caller may be waiting for it any more
        if not self._is_stopped:
            self._trim.soon()

    async def _read_in_turn(self, read: Callable[[], _T], begun: asyncio.Event) -> _T:
        threads = self._config().remote_log_reader_threads
        if threads != self._reader_threads:  # changed while the broker runs: for reads from now on
            self._reader_threads, self._reading_turn = threads, asyncio.Semaphore(threads)
        try:
            async with self._reading_turn:
                begun.set()
                return await asyncio.get_running_loop().run_in_executor(self._readers, read)
        except (RemoteStorageError, OSError):
            self.counts.fetch_errors += 1
            raise


def _has_epochs(log: Log) -> bool:
    """True if the first batch was written in a leader epoch: then that is known unless its records were deleted."""
    head = log.read_slice(FileSlice(log.segments[0].handle(), 0, RECORDS_AT))
    return len(head) == RECORDS_AT and parse_header(head, 0, 0).leader_epoch >= 0
