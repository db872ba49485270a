"""Reads of remote segments for requests, with limits on threads, queue length, memory, time and rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.remote.partition_tasks import MAX_THREADS
from kafkalog_broker.remote.remote_log_reader import MAX_BYTES, RemoteLogReader, RemoteRead
from kafkalog_broker.remote.remote_quota import RemoteQuota
from kafkalog_broker.remote.remote_services import RemoteServices
from kafkalog_broker.runtime.byte_budget import ByteBudget, Lease
from kafkalog_broker.runtime.memory_trim import IdleTrim
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.segment_lookup import SCAN_READ
from kafkalog_broker.storage.partition.timestamp_lookup import TimestampAndOffset, offset_for_timestamp
from kafkalog_spark.errors import KafkalogError, RemoteResourceNotFound, RemoteStorageError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_MEMORY = 12 << 20
"""Largest number of bytes of records in memory. A record counts twice while it is read, then once until it is sent."""
_STOPPING = "the broker is stopping and no longer reads remote storage"


class RemoteReads:
    """Reads remote segments on worker threads. Called from the event loop.

    Attributes:
        memory: Budget for the bytes of reads, and of their responses until they are sent.
    """

    def __init__(self, services: RemoteServices) -> None:
        self._config = services.config
        self._metadata = services.metadata
        self._call = services.call
        self._counts = services.counts
        config = services.config
        initial = config()
        self._quota = RemoteQuota(
            lambda: config().remote_log_manager_fetch_max_bytes_per_second,
            initial.remote_log_manager_fetch_quota_window_num,
            initial.remote_log_manager_fetch_quota_window_size_seconds,
            services.clock.monotonic_ms,
        )
        self._reader = RemoteLogReader(services.storage)
        self._reads: set[asyncio.Task[Any]] = set()
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="kafkalog-remote-read")
        self._trim = IdleTrim(self._threads.submit)
        self.memory = ByteBudget(_MEMORY)
        self._parallel_reads = initial.remote_log_reader_threads
        self._turns = asyncio.Semaphore(self._parallel_reads)
        self._is_stopping = False

    def begin_stop(self) -> None:
        """Refuse reads from now on, and cancel those that are waiting."""
        self._is_stopping = True
        self._trim.cancel()
        for read in self._reads:
            read.cancel()

    def stop(self) -> None:
        """End the idle threads; a thread that waits for a store ends when the store responds."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(
        self, log: Log, offset: int, max_bytes: int, *, at_least_one: bool, committed: bool,
        hold: Callable[[Lease], None] = Lease.release,
    ) -> RemoteRead | None:  # fmt: skip
        """Read records as `RemoteLogReader.read` does, in a thread.

        Args:
            hold: Receives the lease on the memory of the returned records, and releases it when they have been sent.

        Returns:
            None if the read, or the wait for memory before it, takes longer than remote.fetch.max.wait.ms, or if the
            fetch quota is used up.

        Raises:
            BrokerError: offset_out_of_range; kafka_storage_error, which clients retry, while the store fails or the
                broker is stopping; unknown_server_error if an object is damaged or lost.
        """
        if self._quota.wait_ms():
            return None
        remote = self._metadata.cache_of(log.identity)
        self._counts.fetch_requests += 1
        read = partial(
            self._reader.read, log, remote, offset, max_bytes, at_least_one=at_least_one, committed=committed
        )
        wait_ms = self._config().remote_fetch_max_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                lease = await self.memory.acquire(2 * max(min(max_bytes, MAX_BYTES), SCAN_READ))
            result = await self._run_in_thread(read, wait_ms, log, lease)
        except TimeoutError:
            return None
        lease.resize(len(result.records))
        hold(lease)
        self._quota.record(result.fetched_bytes)
        self._counts.fetch_bytes += len(result.records)
        return result

    async def offset_for_timestamp(self, log: Log, timestamp: int, timeout_ms: int = 0) -> TimestampAndOffset | None:
        """Find an offset by timestamp as `RemoteLogReader.offset_for_timestamp` does, in a thread.

        Args:
            log: Log to search.
            timestamp: Smallest timestamp of the wanted record, in ms.
            timeout_ms: Timeout of the request; at or below 0 remote.list.offsets.request.timeout.ms applies.

        Raises:
            BrokerError: request_timed_out, kafka_storage_error, unknown_server_error.
        """
        remote = self._metadata.partitions.get((log.topic_id, log.partition))
        if remote is None:
            local: TimestampAndOffset | None = await self._call(offset_for_timestamp, log, timestamp)
            return local
        look_up = partial(self._reader.offset_for_timestamp, log, remote, timestamp)
        try:
            wait_ms = timeout_ms if timeout_ms > 0 else self._config().remote_list_offsets_request_timeout_ms
            return await self._run_in_thread(look_up, wait_ms, log)
        except TimeoutError as error:
            raise log.partition_error(ErrorCode.request_timed_out, str(error)) from error

    async def _run_in_thread(self, read: Callable[[], _T], wait_ms: int, log: Log, lease: Lease | None = None) -> _T:
        """Run `read` in a thread, and wait at most `wait_ms` for its result.

        After that time a read that is still queued is cancelled. A read that has begun continues, so that its result is
        in the caches when the client tries again.

        Args:
            lease: Memory of the read; released when the read ends, unless its result is returned.

        Raises:
            TimeoutError: If the read takes longer than `wait_ms`.
            BrokerError: kafka_storage_error, unknown_server_error, or an error of `read`.
        """
        refusal = None
        if self._is_stopping:
            refusal = _STOPPING
        elif len(self._reads) >= self._config().remote_log_reader_max_pending_tasks:
            self._counts.fetch_errors += 1
            refusal = f"{len(self._reads)} reads of remote storage are already queued"
        if refusal is not None:
            if lease is not None:
                lease.release()
            raise log.partition_error(ErrorCode.kafka_storage_error, refusal)
        begun = asyncio.Event()
        task = asyncio.create_task(self._run_in_turn(read, begun))
        self._reads.add(task)
        task.add_done_callback(self._read_ended)
        try:
            done, _ = await asyncio.wait([task], timeout=wait_ms / 1000)
            if not done:
                if not begun.is_set():
                    task.cancel()
                raise TimeoutError("remote storage did not respond in time")
            if task.cancelled():
                raise log.partition_error(ErrorCode.kafka_storage_error, _STOPPING)
            try:
                return task.result()
            except BrokerError:
                raise
            except (KafkalogError, OSError) as error:
                _log.warning("%s cannot be read from remote storage: %s", log.name, error)
                # Kafka's code for both is UNKNOWN_SERVER_ERROR, which librdkafka hands to the application.
                is_lost = isinstance(error, RemoteResourceNotFound)
                is_transient = isinstance(error, RemoteStorageError | OSError) and not is_lost
                code = ErrorCode.kafka_storage_error if is_transient else ErrorCode.unknown_server_error
                raise log.partition_error(code, str(error)) from error
        except BaseException:
            if lease is not None:
                task.add_done_callback(lambda _: lease.release())
            raise

    def _read_ended(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may have timed out
        if not self._is_stopping:
            self._trim.soon()

    async def _run_in_turn(self, read: Callable[[], _T], begun: asyncio.Event) -> _T:
        threads = self._config().remote_log_reader_threads
        if threads != self._parallel_reads:  # the configuration changed; the new limit applies to later reads
            self._parallel_reads, self._turns = threads, asyncio.Semaphore(threads)
        try:
            async with self._turns:
                begun.set()
                return await asyncio.get_running_loop().run_in_executor(self._threads, read)
        except (RemoteStorageError, OSError):
            self._counts.fetch_errors += 1
            raise
