"""A share partition in use: when its timer looks for locks that end, and how much of the log a fetch goes through."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_settings import Limits, ShareGroupSettings
from kafkalog_broker.protocol.hot_messages import ShareFetchPartition
from kafkalog_broker.share.acquisition import Acquired, Acquisition, Span
from kafkalog_broker.share.share_fetch import Readable, ShareFetch, ShareFetchParams
from kafkalog_broker.share.share_partition import SharePartition
from kafkalog_broker.share.share_partition_manager import ActiveSharePartition
from kafkalog_broker.share.state_records import SharePartitionKey, StateBatch
from kafkalog_broker.storage.partition.file_handles import FileSlice
from tests.broker.groups.helpers.virtual_time import VirtualTime

KEY = SharePartitionKey("g", UUID(int=1), 0)


class Writes:
    """A share coordinator that takes what is written, or refuses it."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []
        self.failure: ErrorCode | None = None

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, start_offset: int, complete: int,
        batches: Sequence[StateBatch],
    ) -> None:  # fmt: skip
        if self.failure is not None:
            raise BrokerError(self.failure)
        self.written += [(batch.first_offset, batch.last_offset) for batch in batches]


class InUse:
    """A share partition in use over virtual time. lock_ms may be changed, as the property of a group is."""

    def __init__(self, lock_ms: int = 30_000) -> None:
        self.lock_ms = lock_ms
        self.time, self.coordinator, self.partition = VirtualTime(), Writes(), SharePartition(0)
        log = SimpleNamespace(subscribe=lambda call: None, unsubscribe=lambda call: None, name="orders-0")
        manager = SimpleNamespace(
            coordinator=self.coordinator, settings_of=lambda group: self.settings, scheduler=self.time,
            now=self.time.clock.monotonic_ms, forget=lambda active: None,
        )  # fmt: skip
        self.active = ActiveSharePartition(cast(Any, manager), KEY, cast(Any, log), self.partition, (0, 0))

    @property
    def settings(self) -> ShareGroupSettings:
        return ShareGroupSettings(45_000, 5_000, 0, 200, Limits(100, 5, self.lock_ms))

    def get(self, first: int, last: int) -> list[Acquired]:
        now = self.time.clock.monotonic_ms()
        offset, spans = self.partition.next_fetch_offset(), [Span(first, last)]
        found = Acquisition(self.partition, self.settings.limits, "m", offset, spans, 50, 500, now).acquire()
        self.active.watch_locks()
        return found


def test_a_lock_that_ends_before_those_given_earlier_moves_the_timer() -> None:
    one = InUse()
    assert one.get(0, 9) == [(0, 9, 1)]
    one.lock_ms = 1_000
    one.time.advance(100)
    assert one.get(10, 19) == [(10, 19, 1)]
    assert one.time.waiting == 1
    one.time.advance(999)
    assert one.coordinator.written == []
    one.time.advance(1)
    assert one.coordinator.written == [(10, 19)]
    one.time.advance(30_000 - 1_100)
    assert one.coordinator.written == [(10, 19), (0, 9)]
    assert one.time.waiting == 0


def test_a_lock_that_ends_later_lets_the_timer_be() -> None:
    one = InUse(1_000)
    one.get(0, 9)
    one.lock_ms = 30_000
    one.get(10, 19)
    assert one.time.waiting == 1
    one.time.advance(1_000)
    assert one.coordinator.written == [(0, 9)]
    one.time.advance(29_000)
    assert one.coordinator.written == [(0, 9), (10, 19)]


def test_locks_that_cannot_be_written_are_looked_at_again_also_where_others_end_first() -> None:
    one = InUse(1_000)
    one.get(0, 9)
    one.coordinator.failure = ErrorCode.coordinator_not_available
    one.time.advance(1_000)
    one.lock_ms = 100
    one.get(10, 19)
    one.coordinator.failure = None
    one.time.advance(100)
    assert one.coordinator.written == [(0, 9), (10, 19)]
    one.active.close()
    assert one.time.waiting == 0


HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH = HEADER.size + 9


class Handle:
    """A file of batches with one record each, that counts what is read of it. broken: BrokerError instead."""

    def __init__(self, batches: int) -> None:
        headers = (HEADER.pack(at, BATCH - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) for at in range(batches))
        self.data = b"".join(header + bytes(9) for header in headers)
        self.bytes_read = 0
        self.broken = False

    def read(self, position: int, size: int) -> bytes:
        if self.broken:
            raise BrokerError(ErrorCode.corrupt_message, "it is damaged")
        found = self.data[position : position + size]
        self.bytes_read += len(found)
        return found


def given_of(one: InUse, handle: Handle, max_records: int) -> ShareFetchPartition:
    found = FileSlice(cast(Any, handle), 0, len(handle.data))
    asked = ShareFetchParams("m", max_records, 500, 1, 1 << 20, 0)
    fetch = ShareFetch(cast(Any, SimpleNamespace(now=lambda: 0)), [KEY], asked)
    return fetch.acquire(Readable(one.active, 0, 1 << 40, found, 1 << 40), max_records, 1 << 20)


def test_however_many_records_are_wanted_no_more_headers_are_read_than_locks_can_be_given() -> None:
    few, many = Handle(20_000), Handle(20_000)
    assert given_of(InUse(), few, 100).acquired_records == [(0, 99, 1)]
    assert given_of(InUse(), many, 2**31 - 1).acquired_records == [(0, 99, 1)]
    assert many.bytes_read == few.bytes_read < len(many.data) // 10


def test_a_log_that_cannot_be_read_is_an_error_of_its_partition() -> None:
    handle = Handle(10)
    handle.broken = True
    given = given_of(InUse(), handle, 10)
    assert given.error_code is ErrorCode.kafka_storage_error
    assert given.error_message == "orders-0 could not be read: it is damaged"
