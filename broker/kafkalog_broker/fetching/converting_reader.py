"""One pass over the partitions of a Fetch for a client that knows messages v0 and v1 only (Fetch 0 to 3).

It differs from `fetch_read` in three ways. Converted messages stay in memory until the client has received them, so a
response has at most CONVERTED_BYTES. Batches that such a client does not see are skipped until a message follows or the
log ends. Up to version 2 the limits are hard: a message that is larger than the limit is cut off, and the client
repeats the request with a higher limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.converted_window import ConversionRequest, OversizedFirst
from kafkalog_broker.fetching.down_conversion import READ_BYTES, convert
from kafkalog_broker.fetching.fetch_read import Fetched, FetchedPartition, FindLog
from kafkalog_broker.fetching.fetch_request import FetchPartition, LegacyFormat
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.partition.log import Log

if TYPE_CHECKING:
    from kafkalog_broker.remote.remote_log_reader import RemoteRead  # loaded only with remote storage
    from kafkalog_broker.remote.remote_reads import RemoteReads

T = TypeVar("T")

CONVERTED_BYTES = 4 << 20
"""Limit on the bytes of one response. Kafka converts while it sends; here these clients get smaller responses
instead."""
CONVERTED_AT_ONCE = 8
"""Responses that are converted at the same time, which bounds the memory of conversions. Other requests wait."""


class ConvertingReader:
    """Reads and converts for clients of Fetch 0 to 3. One per broker; call from the event loop."""

    def __init__(self, workers: Workers, concurrency: int = CONVERTED_AT_ONCE) -> None:
        self._workers = workers
        self._slots = asyncio.Semaphore(concurrency)

    async def read(
        self,
        partitions: Sequence[FetchPartition],
        find_log: FindLog,
        time_slice: TimeSlice,
        *,
        legacy: LegacyFormat,
        max_bytes: int,
        first: int,
        is_closed: Callable[[], bool],
        remote: RemoteReads | None,
    ) -> Fetched:
        """Read each partition from its fetch offset to the high watermark.

        Args:
            partitions: Partitions to read.
            find_log: Returns the log of a partition; if it raises BrokerError, the partition gets that error.
            time_slice: Other requests run between two partitions when it is over.
            legacy: Format of the client.
            max_bytes: Limit on the bytes of the response, at most CONVERTED_BYTES.
            first: Number that selects the partition to read first. It must change with each request, because these
                clients always list their partitions in the same order.
            is_closed: True if the client has disconnected.
            remote: Reads from remote storage, None without it.
        """
        slot = _Slot(self._slots)
        async with slot:
            reading = _Pass(self._workers, slot, legacy, max_bytes, is_closed, remote)
            count = len(partitions)
            fetched: dict[int, FetchedPartition] = {}
            must_respond = False
            for number in range(count):
                index = (first + number) % count
                request = partitions[index]
                if time_slice.is_over:
                    await time_slice.wait_turn()
                try:
                    fetched[index] = await reading.read(request, find_log(request))
                except BrokerError as error:
                    must_respond = True
                    code = error.code
                    if code is ErrorCode.kafka_storage_error:  # unknown to these clients
                        code = ErrorCode.not_leader_or_follower  # on which they refresh their metadata
                    fetched[index] = FetchedPartition(request, code)
            in_order = [fetched[index] for index in range(count)]
            # A response without room does not wait, because it could not return appended records.
            return Fetched(in_order, reading.size, must_respond or reading.left <= 0)


@dataclass(slots=True)
class _Pass:
    """State of one pass over the partitions.

    Attributes:
        left: Bytes that the response still has room for.
        size: Bytes of messages so far.
    """

    _workers: Workers
    _slot: _Slot
    _legacy: LegacyFormat
    left: int
    _is_closed: Callable[[], bool]
    _remote: RemoteReads | None
    size: int = 0

    async def read(self, request: FetchPartition, log: Log) -> FetchedPartition:
        """Read and convert one partition window by window.

        Raises:
            BrokerError: Only if no message precedes the fault. Otherwise the result ends in front of it.
        """
        log.check_fetch_offset(request.fetch_offset)
        until, appended_bytes = log.high_watermark, log.appended_bytes
        stable, log_start = log.last_stable_offset, log.log_start_offset
        pieces: list[bytes | memoryview] = []
        offset = request.fetch_offset
        size = 0
        is_full = False
        while offset < until and not is_full and not self._is_closed():
            room = min(request.max_bytes - size, self.left)
            oversized_first = self._oversized_first(request, room, has_pieces=bool(pieces))
            if room <= 0 and oversized_first is not OversizedFirst.KEEP:
                break
            remote: RemoteRead | None = None
            try:
                if offset < log.local_log_start_offset and self._remote is not None:
                    remote = await self._slot.await_without_slot(
                        self._remote.read(log, offset, READ_BYTES, at_least_one=True, committed=True)
                    )
                    if remote is None:  # the read took too long; the next request gets the records
                        break
                    if not remote.records:
                        offset = remote.next_offset
                        continue
                window = ConversionRequest(offset, until, self._legacy.magic, max(room, 0), oversized_first)
                converted = await self._workers.run_computing(convert, log, window, remote)
            except BrokerError:
                if not pieces:
                    raise
                break
            pieces += converted.pieces
            size += converted.size
            self.size += converted.size
            self.left -= converted.size
            offset, is_full = converted.next_offset, converted.is_full
        return FetchedPartition(
            request, ErrorCode.none, log, until, stable, log_start, pieces, size,
            appended_bytes=appended_bytes, is_cut_off=offset < until,
        )  # fmt: skip

    def _oversized_first(self, request: FetchPartition, room: int, *, has_pieces: bool) -> OversizedFirst:
        if not self._legacy.hard_limits:
            return OversizedFirst.OMIT if self.size else OversizedFirst.KEEP
        if not has_pieces and (room == request.max_bytes or not self.size):
            return OversizedFirst.CUT_OFF
        return OversizedFirst.OMIT


class _Slot:
    """One slot of a semaphore, released while the request waits for remote storage."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._is_held = False

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        if self._is_held:
            self._slots.release()

    async def await_without_slot(self, work: Awaitable[T]) -> T:
        """Release the slot, await `work` and acquire a slot again."""
        self._slots.release()
        self._is_held = False
        try:
            return await work
        finally:
            await self.__aenter__()
