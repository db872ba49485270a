"""Acquisition of records for a ShareFetch request, which may wait for them (Kafka's DelayedShareFetch)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import READ_AT_ONCE_BYTES
from kafkalog_broker.protocol.share_fetch_messages import ShareFetchPartition
from kafkalog_broker.runtime.byte_budget import Lease
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.acquisition import Acquired, Acquisition, archive_aborted
from kafkalog_broker.share.active_share_partition import ActiveSharePartition
from kafkalog_broker.share.log_batches import LogBatch, aborted_spans, read_log_batches
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.share.share_state import SharePartitionKey
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from kafkalog_spark.format.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # loaded only with remote storage

FetchedPartitions = dict[SharePartitionKey, ShareFetchPartition]


@dataclass(frozen=True, slots=True)
class ShareFetchParams:
    """Parameters of a ShareFetch. `is_record_limit` is true in the acquire mode RECORD_LIMIT (KIP-1206)."""

    member_id: str
    max_records: int
    batch_size: int
    min_bytes: int
    max_bytes: int
    wait_s: float
    is_record_limit: bool = False


class ReadableRange(NamedTuple):
    """Records of a partition that a fetch can read.

    Attributes:
        offset, next_offset: The records have offsets in [offset, next_offset).
        readable_end: End of all records that the group may read: the last stable offset or the high watermark.
        data: The batches of the records.
        aborted: Aborted transactions of records from remote storage; None for records of a local segment.
    """

    active: ActiveSharePartition
    offset: int
    readable_end: int
    data: FileSlice
    next_offset: int
    aborted: Sequence[AbortedTransaction] | None = None


class ShareFetch:
    """A fetch of one member from several partitions. Not thread-safe; call from the event loop."""

    def __init__(
        self, manager: SharePartitionManager, keys: Sequence[SharePartitionKey], params: ShareFetchParams,
        remote: RemoteLogManager | None = None, hold: Callable[[Lease], None] = Lease.release,
    ) -> None:  # fmt: skip
        """Create a fetch, which `run` carries out.

        Args:
            keys: The partitions, in the order in which they are read.
            hold: See `RemoteReads.read`.
        """
        self._manager = manager
        self._remote = remote
        self._hold = hold
        self._keys = keys
        self._params = params
        self._is_timed_out = False
        self._woken = asyncio.Event()  # cleared only while the fetch waits
        self._woken.set()
        self._parked_at: list[ActiveSharePartition] = []

    async def run(
        self, on_close: Callable[[Callable[[], None]], Callable[[], None]], is_closed: Callable[[], bool]
    ) -> FetchedPartitions:
        """Acquire records, now or within the wait time of the request.

        Args:
            on_close: Registers a function to be called when the member's connection is closed; returns a function that
                removes it.
            is_closed: Returns whether the connection is closed.

        Returns:
            The partitions with readable records, and those with an error.
        """
        if not self._keys or not self._params.max_records or not self._params.max_bytes:
            return {}
        fetched = await self._try_acquire(TimeSlice(), may_wait=self._params.wait_s > 0)
        if fetched is not None:
            return fetched
        timer = asyncio.get_running_loop().call_later(self._params.wait_s, self._time_out)
        remove_callback = on_close(self._woken.set)
        try:
            return await self._wait(is_closed)
        finally:
            timer.cancel()
            remove_callback()
            self._unpark()

    def _time_out(self) -> None:
        self._is_timed_out = True
        self._woken.set()

    async def _wait(self, is_closed: Callable[[], bool]) -> FetchedPartitions:
        while True:
            self._woken.clear()
            for active in self._parked_at:
                active.park(self._woken)
            if not self._is_timed_out and not any(active.is_closed for active in self._parked_at):
                await self._woken.wait()
            self._woken.set()
            if is_closed():  # another fetch gets the records that woke this one
                parked_at = self._parked_at
                self._unpark()
                for active in parked_at:
                    active.wake_next()
                return {}
            time_slice = TimeSlice()
            await time_slice.wait_turn()
            fetched = await self._try_acquire(time_slice, may_wait=not self._is_timed_out)
            if fetched is not None:
                return fetched

    def _park(self, active_partitions: Sequence[ActiveSharePartition]) -> None:
        self._unpark()
        self._parked_at = list(active_partitions)
        for active in active_partitions:
            active.park(self._woken)
            active.wake_next()

    def _unpark(self) -> None:
        for active in self._parked_at:
            active.unpark(self._woken)
        self._parked_at = []

    async def _try_acquire(self, time_slice: TimeSlice, *, may_wait: bool) -> FetchedPartitions | None:
        """Acquire records. If `may_wait` and fewer than min_bytes are available, park the fetch and return None."""
        fetched: FetchedPartitions = {}
        active_partitions: list[ActiveSharePartition] = []
        for key in self._keys:
            try:
                active_partitions.append(await self._manager.load(key))
            except BrokerError as error:
                fetched[key] = ShareFetchPartition(key.partition, error.code, error.what)
            if time_slice.is_over:
                await time_slice.wait_turn()
        if fetched and not active_partitions:
            return fetched
        ranges = await self._find_ranges(active_partitions, fetched)
        size = sum(len(readable.data) for readable in ranges)
        if may_wait and not fetched and (not ranges or size < self._params.min_bytes):
            self._park(active_partitions)
            return None
        await self._acquire_all(ranges, fetched, time_slice)
        return fetched

    async def _find_ranges(
        self, active_partitions: Sequence[ActiveSharePartition], fetched: FetchedPartitions
    ) -> list[ReadableRange]:
        """Find records for each partition from which records can be acquired. Errors are added to `fetched`."""
        ready = [active for active in active_partitions if active.partition.can_acquire(active.settings.limits)]
        max_bytes = max(1, self._params.max_bytes // max(1, len(ready)))
        ranges: list[ReadableRange] = []
        has_read_remotely = False
        for active in ready:
            log, partition = active.log, active.partition
            try:
                if partition.next_fetch_offset() < log.log_start_offset:
                    partition.advance_to_log_start(log.log_start_offset)
                offset = partition.next_fetch_offset()
                readable_end = log.last_stable_offset if active.settings.reads_committed else log.high_watermark
                if offset < min(readable_end, log.local_log_start_offset) and self._remote is not None:
                    if has_read_remotely:
                        # A fetch reads one partition remotely. The order of partitions rotates with each fetch.
                        continue
                    has_read_remotely = True
                    readable = await self._find_remotely(self._remote, active, offset, readable_end, max_bytes)
                    if readable is not None:
                        ranges.append(readable)
                elif offset < readable_end:
                    local = log.find_range(offset, max_bytes, up_to=readable_end, at_least_one=True)
                    if local.slices:
                        ranges.append(ReadableRange(active, offset, readable_end, local.slices[0], local.next_offset))
            except BrokerError as error:
                fetched[active.key] = ShareFetchPartition(active.key.partition, error.code, error.what)
        return ranges

    async def _find_remotely(
        self, remote: RemoteLogManager, active: ActiveSharePartition, offset: int, readable_end: int, max_bytes: int
    ) -> ReadableRange | None:
        committed = active.settings.reads_committed
        read = await remote.reads.read(
            active.log, offset, max_bytes, at_least_one=True, committed=committed, hold=self._hold
        )  # fmt: skip
        if read is None or not read.records:
            return None
        data = FileSlice(_RecordsInMemory(read.records), 0, len(read.records))
        return ReadableRange(active, offset, readable_end, data, read.next_offset, read.aborted or ())

    async def _acquire_all(
        self, ranges: Sequence[ReadableRange], fetched: FetchedPartitions, time_slice: TimeSlice
    ) -> None:
        """Acquire records of `ranges`, and add them to `fetched`."""
        records_left = self._params.max_records
        memory_left = READ_AT_ONCE_BYTES
        for readable in ranges:
            active = readable.active
            if active.is_closed:
                continue
            partition = fetched[active.key] = self.acquire(readable, records_left, memory_left)
            records_left -= sum(last - first + 1 for first, last, _ in partition.acquired_records)
            if partition.size <= memory_left:
                memory_left -= partition.size
            active.arm_lock_timer()
            if active.partition.next_fetch_offset() < readable.readable_end:
                active.notify_change()
            if time_slice.is_over:
                await time_slice.wait_turn()

    def acquire(self, readable: ReadableRange, max_records: int, memory_bytes: int) -> ShareFetchPartition:
        """Acquire records of one partition.

        Args:
            memory_bytes: Records up to this size are read into memory; others are sent from the file.
        """
        active = readable.active
        fetched = ShareFetchPartition(active.key.partition)
        try:
            max_in_flight = active.settings.limits.max_in_flight
            # Offsets after this one cannot be acquired, so the headers of later batches are not read.
            until = max(active.partition.end_offset + 1, readable.offset) + min(max_records, max_in_flight)
            batches = read_log_batches(readable.data, readable.offset, until)
            acquired = self._acquire(readable, batches, max_records)
            if acquired:
                records = _records_of(readable.data, batches, acquired)
                is_read = len(records) <= memory_bytes or readable.aborted is not None
                fetched.records = [records.read() if is_read else records]
                fetched.acquired_records = acquired
        except (OSError, BrokerError) as error:  # acquired records are released when their lock expires
            fetched.error_code = ErrorCode.kafka_storage_error
            fetched.error_message = f"{active.log.name} could not be read: {error}"
        return fetched

    def _acquire(self, readable: ReadableRange, batches: Sequence[LogBatch], max_records: int) -> list[Acquired]:
        active = readable.active
        params = self._params
        partition, settings = active.partition, active.settings
        acquired = Acquisition(
            partition, settings.limits, params.member_id, readable.offset, [batch.span for batch in batches],
            max_records, params.batch_size, self._manager.now_ms(), params.is_record_limit,
        ).acquire()  # fmt: skip
        if acquired and settings.reads_committed:
            transactions = readable.aborted
            if transactions is None:
                transactions = active.log.aborted_transactions(readable.offset, readable.next_offset)
            if transactions:
                acquired = archive_aborted(partition, acquired, aborted_spans(readable.data, batches, transactions))
        return acquired


def _records_of(data: FileSlice, batches: Sequence[LogBatch], acquired: Sequence[Acquired]) -> FileSlice:
    """Return the slice from the batch with the first acquired offset to the batch with the last one."""
    first = acquired[0].first_offset
    last = acquired[-1].last_offset
    needed = [batch for batch in batches if batch.span.last >= first and batch.span.first <= last]
    start = needed[0].position
    end = needed[-1].position + needed[-1].size
    return FileSlice(data.handle, data.position + start, end - start)


class _RecordsInMemory(FileHandle):
    """File handle of records that were read from remote storage into memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self.fd = -1
        self._data = data

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]
