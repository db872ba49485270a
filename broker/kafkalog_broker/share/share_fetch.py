"""A ShareFetch: acquires records of a member's partitions, now or once some are there (Kafka's DelayedShareFetch)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import READ_AT_ONCE_BYTES
from kafkalog_broker.protocol.hot_messages import ShareFetchPartition
from kafkalog_broker.runtime.byte_budget import Lease
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.acquisition import Acquisition, Span, archive_aborted
from kafkalog_broker.share.share_partition_manager import ActiveSharePartition, SharePartitionManager
from kafkalog_broker.share.state_records import SharePartitionKey
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from kafkalog_spark.format import layout
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # which others do without

_HEADER = struct.Struct(">qi4xb4xhi16xq")  # base offset, length, magic, attributes, last offset delta, producer id
_PREFIX = 12  # base offset and length, which does not count them
_WINDOW = 64 << 10
_LARGE = 16 << 10  # a batch; the next header is read alone then
_V2 = 2


@dataclass(frozen=True, slots=True)
class ShareFetchParams:
    """Parameters of a ShareFetch. strictly: share.acquire.mode is record_limit."""

    member_id: str
    max_records: int
    batch_size: int
    min_bytes: int
    max_bytes: int
    wait_s: float
    strictly: bool = False


class Readable(NamedTuple):
    """Records [offset, next_offset) that may be acquired, of those up to `until`. aborted: where the records are remote
    and held in memory."""

    active: ActiveSharePartition
    offset: int
    until: int
    data: FileSlice
    next_offset: int
    aborted: Sequence[AbortedTransaction] | None = None


class _Held(FileHandle):
    """Records that were read remotely, as a file."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self.fd, self._data = -1, data

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


FetchedShares = dict[SharePartitionKey, ShareFetchPartition]


class ShareFetch:
    """A waiting request. keys: in lookup order. Partitions with nothing to say are left out of the result."""

    def __init__(
        self, manager: SharePartitionManager, keys: Sequence[SharePartitionKey], params: ShareFetchParams,
        remote: RemoteLogManager | None = None, hold: Callable[[Lease], None] = Lease.release,
    ) -> None:  # fmt: skip
        """hold: as RemoteLogManager.read."""
        self._manager, self._remote, self._hold = manager, remote, hold
        self._keys = keys
        self._params = params
        self._is_over = False
        self._woken = asyncio.Event()
        self._woken.set()
        self._watched: list[ActiveSharePartition] = []

    async def run(
        self, on_close: Callable[[Callable[[], None]], Callable[[], None]], is_closed: Callable[[], bool]
    ) -> FetchedShares:
        """on_close: calls back when the member's connection goes; returns what undoes it."""
        if not self._keys or not self._params.max_records or not self._params.max_bytes:
            return {}
        fetched = await self._try(TimeSlice(), at_once=self._params.wait_s <= 0)
        if fetched is not None:
            return fetched
        timer = asyncio.get_running_loop().call_later(self._params.wait_s, self._end)
        undo = on_close(self._woken.set)
        try:
            return await self._wait(is_closed)
        finally:
            timer.cancel()
            undo()
            self._forget()

    # waiting

    def _end(self) -> None:
        self._is_over = True
        self._woken.set()

    async def _wait(self, is_closed: Callable[[], bool]) -> FetchedShares:
        while True:
            self._woken.clear()
            for active in self._watched:
                active.wait(self._woken)
            if not self._is_over and not any(active.is_over for active in self._watched):
                await self._woken.wait()
            self._woken.set()
            if is_closed():  # it gets nothing; what woke it is for somebody else
                watched = self._watched
                self._forget()
                for active in watched:
                    active.wake_next()
                return {}
            turn = TimeSlice()
            await turn.next()
            fetched = await self._try(turn, at_once=self._is_over)
            if fetched is not None:
                return fetched

    def _forget(self) -> None:
        for active in self._watched:
            active.forget(self._woken)
        self._watched = []

    # reading

    async def _try(self, turn: TimeSlice, *, at_once: bool) -> FetchedShares | None:
        """None: it is worth waiting. at_once: nothing is."""
        fetched: FetchedShares = {}
        in_use: list[ActiveSharePartition] = []
        for key in self._keys:
            try:
                in_use.append(await self._manager.load(key))
            except BrokerError as error:
                fetched[key] = ShareFetchPartition(key.partition, error.code, error.what)
            if turn.over:
                await turn.next()
        if fetched and not in_use:
            return fetched
        readable = await self._readable(in_use, fetched)
        size = sum(len(ready.data) for ready in readable)
        if not at_once and not fetched and (not readable or size < self._params.min_bytes):
            self._forget()
            self._watched = in_use
            for active in in_use:
                active.wait(self._woken)
                active.wake_next()
            return None
        records_left, at_once_bytes = self._params.max_records, READ_AT_ONCE_BYTES
        for ready in readable:
            active = ready.active
            if active.is_over:
                continue
            share = fetched[active.key] = self.acquire(ready, records_left, at_once_bytes)
            records_left -= sum(last - first + 1 for first, last, _ in share.acquired_records)
            if share.size <= at_once_bytes:
                at_once_bytes -= share.size
            active.watch_locks()
            if active.partition.next_fetch_offset() < ready.until:
                active.notify()
            if turn.over:
                await turn.next()
        return fetched

    async def _readable(self, in_use: Sequence[ActiveSharePartition], fetched: FetchedShares) -> list[Readable]:
        ready = [active for active in in_use if active.partition.can_acquire(active.settings.limits)]
        max_bytes = max(1, self._params.max_bytes // max(1, len(ready)))
        readable, read_remotely = [], False
        for active in ready:
            log, partition = active.log, active.partition
            try:
                if partition.next_fetch_offset() < log.log_start_offset:
                    partition.log_start_moved(log.log_start_offset)
                offset = partition.next_fetch_offset()
                until = log.last_stable_offset if active.settings.reads_committed else log.high_watermark
                if offset < min(until, log.local_log_start_offset) and self._remote is not None:
                    if read_remotely:  # one partition of a fetch at a time; those that follow come first in the next
                        continue
                    read_remotely = True
                    committed = active.settings.reads_committed
                    read = await self._remote.reads.read(
                        log, offset, max_bytes, at_least_one=True, committed=committed, hold=self._hold
                    )
                    if read is not None and read.records:
                        data = FileSlice(_Held(read.records), 0, len(read.records))
                        readable.append(Readable(active, offset, until, data, read.next_offset, read.aborted or ()))
                elif offset < until:
                    found = log.find_range(offset, max_bytes, up_to=until, at_least_one=True)
                    if found.slices:
                        readable.append(Readable(active, offset, until, found.slices[0], found.next_offset))
            except BrokerError as error:
                fetched[active.key] = ShareFetchPartition(active.key.partition, error.code, error.what)
        return readable

    def acquire(self, ready: Readable, max_records: int, at_once_bytes: int) -> ShareFetchPartition:
        """Acquire what may be of a partition. at_once_bytes: so much is read into memory here."""
        active, data, params = ready.active, ready.data, self._params
        given = ShareFetchPartition(active.key.partition)
        partition, settings = active.partition, active.settings
        try:
            # Nothing is acquired further on than this, whatever else there is to read.
            until = max(partition.end_offset + 1, ready.offset) + min(max_records, settings.limits.max_in_flight)
            batches = batches_in(data, ready.offset, until)
            acquired = Acquisition(
                partition, settings.limits, params.member_id, ready.offset, [batch.span for batch in batches],
                max_records, params.batch_size, self._manager.now(), params.strictly,
            ).acquire()  # fmt: skip
            if acquired and settings.reads_committed:
                transactions = ready.aborted
                if transactions is None:
                    transactions = active.log.aborted_transactions(ready.offset, ready.next_offset)
                if transactions:
                    acquired = archive_aborted(partition, acquired, aborted_in(data, batches, transactions))
            if acquired:
                # the batches that hold what was acquired, and those between
                first, last = acquired[0].first_offset, acquired[-1].last_offset
                some = [batch for batch in batches if batch.span.last >= first and batch.span.first <= last]
                start, end = some[0].position, some[-1].position + some[-1].size
                records = FileSlice(data.handle, data.position + start, end - start)
                is_read = len(records) <= at_once_bytes or ready.aborted is not None
                given.records, given.acquired_records = [records.read() if is_read else records], acquired
        except (OSError, BrokerError) as error:  # what was acquired is free again when its lock ends
            given.error_code = ErrorCode.kafka_storage_error
            given.error_message = f"{active.log.name} could not be read: {error}"
        return given


class LogBatch(NamedTuple):
    """A batch of the log, at `position` of a slice."""

    span: Span
    position: int
    size: int
    attributes: int
    producer_id: int


def batches_in(data: FileSlice, offset: int, until: int) -> list[LogBatch]:
    """Batches of a slice from the one that holds `offset` to that of `until`; only headers are read. Raises OSError."""
    batches: list[LogBatch] = []
    window, window_at, position, before = b"", 0, 0, offset - 1
    read_next = _WINDOW
    while position + _PREFIX < data.size:
        at = position - window_at
        if at + _HEADER.size > len(window):
            window = data.handle.read(data.position + position, min(read_next, data.size - position))
            window_at, at = position, 0
            if len(window) < _HEADER.size:
                break  # a message of an old format, shorter than a batch
        base, length, magic, attributes, delta, producer_id = _HEADER.unpack_from(window, at)
        if magic < _V2:  # a message, or a wrapper, which says its last offset only
            base, delta, attributes, producer_id = before + 1, base - before - 1, 0, layout.NO_PRODUCER_ID
        size = length + _PREFIX
        before = base + delta
        batches.append(LogBatch(Span(base, before), position, size, attributes, producer_id))
        if before >= until:
            break
        position += size
        read_next = _HEADER.size if size > _LARGE else _WINDOW
    return batches


def aborted_in(data: FileSlice, batches: Sequence[LogBatch], transactions: Sequence[AbortedTransaction]) -> list[Span]:
    """Those of aborted transactions. Raises OSError."""
    pending = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
    aborted: set[int] = set()
    spans = []
    for batch in batches:
        while pending and pending[-1][1] <= batch.span.last:
            aborted.add(pending.pop()[0])
        if batch.producer_id not in aborted:
            continue
        if batch.attributes & layout.ATTRIBUTE_CONTROL:
            control = data.handle.read(data.position + batch.position, batch.size)
            if control_type(control) == ControlType.ABORT:
                aborted.discard(batch.producer_id)
        elif batch.attributes & layout.ATTRIBUTE_TRANSACTIONAL:
            spans.append(batch.span)
    return spans
