"""A ShareFetch: acquires records of a member's partitions, now or once some are there (Kafka's DelayedShareFetch)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import READ_AT_ONCE_BYTES
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.fetching.batch_spans import FoundBatch, aborted_in, batches_in
from kafkalog_broker.share.fetching.deliveries import Deliveries, Delivery
from kafkalog_broker.share.partition.acquisition import Acquired, Wanted, acquire, archive_aborted
from kafkalog_broker.share.state.state_records import SharePartitionKey
from kafkalog_broker.storage.partition.log_segment import FileSlice


@dataclass(frozen=True, slots=True)
class Asked:
    """Parameters of a ShareFetch. strictly: share.acquire.mode is record_limit."""

    member_id: str
    max_records: int
    batch_size: int
    min_bytes: int
    max_bytes: int
    wait_s: float
    strictly: bool = False


@dataclass(slots=True)
class Given:
    """Result for a partition: records (bytes and slices of files), and which of them the member has acquired."""

    error: ErrorCode = ErrorCode.none
    error_message: str | None = None
    records: list[Any] = field(default_factory=list)
    acquired: list[Acquired] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


class _Readable(NamedTuple):
    delivery: Delivery
    offset: int
    until: int
    found: FileSlice
    next_offset: int


Answers = dict[SharePartitionKey, Given]


async def share_fetch(
    deliveries: Deliveries,
    keys: Sequence[SharePartitionKey],
    asked: Asked,
    on_close: Callable[[Callable[[], None]], Callable[[], None]],
    is_closed: Callable[[], bool],
) -> Answers:
    """keys: in the order in which they are looked at. on_close: calls back when the member's connection goes; returns
    what undoes it. Partitions without anything to say are left out."""
    if not keys or not asked.max_records or not asked.max_bytes:
        return {}
    fetch = _ShareFetch(deliveries, keys, asked, is_closed)
    answers = await fetch.try_now(TimeSlice(), at_once=asked.wait_s <= 0)
    if answers is not None:
        return answers
    loop = asyncio.get_running_loop()
    timer = loop.call_later(asked.wait_s, fetch.time_is_over)
    undo = on_close(fetch.wake)
    try:
        return await fetch.wait()
    finally:
        timer.cancel()
        undo()
        fetch.forget()


class _ShareFetch:
    """A request, and where it waits."""

    def __init__(
        self,
        deliveries: Deliveries,
        keys: Sequence[SharePartitionKey],
        asked: Asked,
        is_closed: Callable[[], bool],
    ) -> None:
        self._deliveries = deliveries
        self._keys = keys
        self._asked = asked
        self._is_closed = is_closed
        self._is_over = False
        self._woken: asyncio.Future[None] | None = None
        self._watched: list[Delivery] = []

    # waiting

    @property
    def is_awake(self) -> bool:
        return self._woken is None or self._woken.done()

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def time_is_over(self) -> None:
        self._is_over = True
        self.wake()

    async def wait(self) -> Answers:
        while True:
            self._woken = asyncio.get_running_loop().create_future()
            for delivery in self._watched:
                delivery.wait(self)
            if not self._is_over and not any(delivery.is_over for delivery in self._watched):
                await self._woken
            if self._is_closed():  # it gets nothing; what woke it is for somebody else
                watched = self._watched
                self.forget()
                for delivery in watched:
                    delivery.pass_on()
                return {}
            turn = TimeSlice()
            await turn.next()
            answers = await self.try_now(turn, at_once=self._is_over)
            if answers is not None:
                return answers

    def forget(self) -> None:
        for delivery in self._watched:
            delivery.forget(self)
        self._watched = []

    # reading

    async def try_now(self, turn: TimeSlice, *, at_once: bool) -> Answers | None:
        """None: it is worth waiting. at_once: nothing is."""
        answers: Answers = {}
        in_use: list[Delivery] = []
        for key in self._keys:
            try:
                in_use.append(await self._deliveries.opened(key))
            except BrokerError as error:
                answers[key] = Given(error.code, error.what)
            if turn.over:
                await turn.next()
        if answers and not in_use:
            return answers
        readable, size = self._readable(in_use, answers)
        if not at_once and not answers and (not readable or size < self._asked.min_bytes):
            self.forget()
            self._watched = in_use
            for delivery in in_use:
                delivery.wait(self)
                delivery.pass_on()
            return None
        left, at_once_bytes = self._asked.max_records, READ_AT_ONCE_BYTES
        for one in readable:
            if one.delivery.is_over:
                continue
            given = self._give(one, left, at_once_bytes)
            answers[one.delivery.key] = given
            left -= sum(last - first + 1 for first, last, _ in given.acquired)
            if given.size <= at_once_bytes:
                at_once_bytes -= given.size
            one.delivery.watch_locks()
            if one.delivery.partition.next_fetch_offset() < one.until:
                one.delivery.notify()
            if turn.over:
                await turn.next()
        return answers

    def _readable(self, in_use: Sequence[Delivery], answers: Answers) -> tuple[list[_Readable], int]:
        """Partitions with records to read, and the bytes of these."""
        ready = [one for one in in_use if one.partition.can_acquire(one.settings.limits)]
        most = max(1, self._asked.max_bytes // max(1, len(ready)))
        readable, size = [], 0
        for delivery in ready:
            try:
                found = self._find(delivery, most)
            except BrokerError as error:
                answers[delivery.key] = Given(error.code, error.what)
                continue
            if found is not None:
                readable.append(found)
                size += len(found.found)
        return readable, size

    def _find(self, delivery: Delivery, max_bytes: int) -> _Readable | None:
        log, partition = delivery.log, delivery.partition
        if partition.next_fetch_offset() < log.log_start_offset:
            partition.log_start_moved(log.log_start_offset)
        offset = partition.next_fetch_offset()
        until = log.last_stable_offset if delivery.settings.reads_committed else log.high_watermark
        if offset >= until:
            return None
        found = log.find_range(offset, max_bytes, up_to=until, at_least_one=True)
        if not found.slices:
            return None
        return _Readable(delivery, offset, until, found.slices[0], found.next_offset)

    def _give(self, one: _Readable, left: int, at_once_bytes: int) -> Given:
        delivery, asked = one.delivery, self._asked
        partition, settings = delivery.partition, delivery.settings
        try:
            # Nothing is acquired further on than this, whatever else there is to read.
            until = max(partition.end_offset + 1, one.offset) + min(left, settings.limits.max_in_flight)
            batches = batches_in(one.found, one.offset, until)
            wanted = Wanted(
                asked.member_id, one.offset, [batch.span for batch in batches], left, asked.batch_size,
                self._deliveries.now(), asked.strictly,
            )  # fmt: skip
            acquired = acquire(partition, wanted, settings.limits)
            if acquired and settings.reads_committed:
                transactions = delivery.log.aborted_transactions(one.offset, one.next_offset)
                if transactions:
                    acquired = archive_aborted(partition, acquired, aborted_in(one.found, batches, transactions))
            if not acquired:
                return Given()
            records = _cut(one.found, batches, acquired)
            if len(records) <= at_once_bytes:
                return Given(records=[records.read()], acquired=acquired)
            return Given(records=[records], acquired=acquired)
        except (OSError, BrokerError) as error:  # what was acquired is free again when its lock ends
            return Given(ErrorCode.kafka_storage_error, f"{delivery.log.name} could not be read: {error}")


def _cut(found: FileSlice, batches: Sequence[FoundBatch], acquired: Sequence[Acquired]) -> FileSlice:
    """The batches that hold what was acquired, and those between."""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [batch for batch in batches if batch.span.last >= first and batch.span.first <= last]
    start = wanted[0].position
    return FileSlice(found.handle, found.position + start, wanted[-1].position + wanted[-1].size - start)
