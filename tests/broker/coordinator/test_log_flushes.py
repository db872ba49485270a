"""LogFlushes: which flushes run, and which callers share them. Threads are futures that the test completes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError, ErrorCode
from tests.broker.net.helpers.fakes import in_a_loop, settle


class FakeLog:
    """A log with flush.messages=1, whose flush covers what was appended before it began."""

    def __init__(self, flush_messages: int = 1) -> None:
        self.config = SimpleNamespace(flush_messages=flush_messages)
        self.log_end_offset = self._recovery_point = self.high_watermark = self.looks = 0
        self.failure: OSError | None = None
        self.is_closed = self.is_follower = False

    @property
    def recovery_point(self) -> int:
        self.looks += 1
        assert self.looks < 100, "the event loop is held"
        return self._recovery_point

    def append(self) -> None:
        self.log_end_offset += 1

    def flush(self, up_to: int) -> None:
        self.check_online()
        self._recovery_point = self.high_watermark = up_to

    def check_online(self) -> None:
        if self.failure is not None:
            raise BrokerError(ErrorCode.kafka_storage_error, "offline")
        if self.is_closed:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "closed")


class Threads:
    """Flushes that have begun and not ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, asyncio.Future[None]]] = []
        self.count = 0

    def begin(self, call: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun.append((call, future))
        self.count += 1
        return future

    async def end_one(self) -> None:
        call, future = self.begun.pop(0)
        try:
            future.set_result(call())
        except BrokerError as error:
            future.set_exception(error)
        await settle()


def made() -> tuple[Any, Threads, LogFlushes]:
    threads = Threads()
    return FakeLog(), threads, LogFlushes(threads.begin)


@in_a_loop
async def test_flush_that_is_running_is_shared_and_followed_by_one_for_later_records() -> None:
    log, threads, flushes = made()
    log.append()
    flushes.register(log)
    first = [asyncio.ensure_future(flushes.flush_registered()) for _ in range(3)]
    await settle()
    log.append()  # too late for the flush that is running
    later = [asyncio.ensure_future(flushes.flush_registered()) for _ in range(3)]
    await settle()
    assert threads.count == 1
    await threads.end_one()
    assert all(one.done() for one in first)
    assert not any(one.done() for one in later)
    assert threads.count == 2
    assert flushes.registered
    await threads.end_one()
    assert all(one.done() for one in later)
    assert threads.count == 2
    assert not flushes.registered


@in_a_loop
async def test_flush_that_has_ended_is_not_shared_although_its_callbacks_have_not_run() -> None:
    log, threads, flushes = made()
    log.append()
    first = asyncio.ensure_future(flushes.flush(log, 1))
    await settle()
    call, future = threads.begun.pop()
    future.set_result(call())
    log.append()  # by a task that runs before the callbacks
    later = asyncio.ensure_future(flushes.flush(log, 2))
    later_step = flushes.flush(log, 2)
    assert later_step.send(None) is not None, "it waits for another flush"
    later_step.close()
    await settle()
    await threads.end_one()
    await asyncio.gather(first, later)
    assert threads.count == 2


@in_a_loop
async def test_log_with_default_flush_policy_is_not_registered() -> None:
    _, threads, flushes = made()
    log: Any = FakeLog(flush_messages=2**63 - 1)
    log.append()
    flushes.register(log)
    await flushes.flush_registered()
    assert not flushes.registered
    assert not threads.count


@in_a_loop
async def test_failed_flush_is_raised_in_all_waiting_callers_and_counted() -> None:
    log, threads, flushes = made()
    log.append()
    flushes.register(log)
    waiting = [asyncio.ensure_future(flushes.flush_registered()) for _ in range(2)]
    await settle()
    log.failure = OSError(5, "gone")
    await threads.end_one()
    for one in waiting:
        with pytest.raises(BrokerError, match="offline"):
            await one
    assert flushes.failures == 1
    assert not flushes.registered, "other requests go on"


@in_a_loop
async def test_log_of_a_deleted_topic_delays_no_response() -> None:
    log, threads, flushes = made()
    log.append()
    flushes.register(log)
    waiting = asyncio.ensure_future(flushes.flush_registered())
    await settle()
    log.is_closed = True
    await threads.end_one()
    await waiting
    assert not flushes.registered
    assert not flushes.failures


@in_a_loop
async def test_log_that_was_flushed_by_others_is_forgotten_without_a_flush() -> None:
    log, threads, flushes = made()
    log.append()
    flushes.register(log)
    log.flush(1)
    await flushes.flush_registered()
    assert not flushes.registered
    assert not threads.count


@in_a_loop
async def test_caller_that_is_cancelled_leaves_the_flush_to_the_others() -> None:
    log, threads, flushes = made()
    log.append()
    flushes.register(log)
    cancelled, other = (asyncio.ensure_future(flushes.flush_registered()) for _ in range(2))
    await settle()
    cancelled.cancel()
    await settle()
    await threads.end_one()
    await other
    assert threads.count == 1
