"""Turns of long requests: their total time in one round of the event loop is bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from kafkalog_broker.runtime import fair_scheduling
from kafkalog_broker.runtime.fair_scheduling import (
    FIRST_SLICE_S,
    MAX_ITERATION_S,
    SLICE_S,
    SLICES_PER_ITERATION,
    TURN_S,
    FairQueue,
    TimeSlice,
    fair_queue,
)
from tests.broker.net.helpers.fakes import in_a_loop

STEP_S = 0.0001


class Time:
    """A fake processor clock, which advances only during work."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(fair_scheduling, "perf_counter", clock)
    return clock


async def long_request(time: Time, steps: int) -> None:
    async for _ in TimeSlice().spread(range(steps)):
        time.now += STEP_S


async def longest_round(time: Time, tasks: list[asyncio.Task[None]]) -> float:
    """Return the longest work between two rounds of the event loop, until all tasks are done."""
    longest = 0.0
    while not all(task.done() for task in tasks):
        before = time.now
        await asyncio.sleep(0)
        longest = max(longest, time.now - before)
    return longest


@in_a_loop
async def test_fifty_long_requests_hold_the_loop_no_longer_than_one(time: Time) -> None:
    one = await longest_round(time, [asyncio.create_task(long_request(time, 500))])
    begins = [asyncio.create_task(long_request(time, 500)) for _ in range(50)]
    await asyncio.sleep(0)  # their first slices, which connections spread over rounds (`Line.begin`)
    many = await longest_round(time, begins)
    assert one == pytest.approx(TURN_S, abs=2 * STEP_S)
    assert many == pytest.approx(one, abs=2 * STEP_S)


@in_a_loop
async def test_long_requests_take_turns(time: Time) -> None:
    done: list[int] = []

    async def request(number: int) -> None:
        await long_request(time, 100)
        done.append(number)

    await asyncio.gather(*(request(number) for number in range(5)))
    assert done == [0, 1, 2, 3, 4]
    assert time.now == pytest.approx(1 + 5 * 100 * STEP_S)


@in_a_loop
async def test_new_request_does_not_wait_for_continuing_ones(time: Time) -> None:
    hogs = [asyncio.create_task(long_request(time, 10_000)) for _ in range(50)]
    await asyncio.sleep(0)
    before = time.now
    await fair_queue().wait_slice()
    waited = time.now - before
    for hog in hogs:
        hog.cancel()
    assert waited <= 2 * TURN_S + 2 * STEP_S


@in_a_loop
async def test_short_request_waits_for_slices_and_short_turns_only(time: Time) -> None:
    hogs = [asyncio.create_task(long_request(time, 10_000)) for _ in range(50)]
    await asyncio.sleep(0)

    async def begins() -> None:
        end = await fair_queue().wait_slice()
        while time.now < end:
            time.now += STEP_S

    slices = [asyncio.create_task(begins()) for _ in range(50)]
    await asyncio.sleep(0)
    before = time.now
    await fair_queue().wait_slice()
    waited = time.now - before
    for task in hogs + slices:
        task.cancel()
    assert waited < 0.05


@in_a_loop
async def test_slices_without_waiting_are_limited_until_sockets_are_read(time: Time) -> None:
    one = FairQueue()
    given = 0
    while one.slice_now(time.now):
        time.now += SLICE_S
        given += 1
        assert given <= SLICES_PER_ITERATION + 1  # rounding
    assert given >= SLICES_PER_ITERATION
    one.begin_iteration()
    assert one.slice_now(time.now) == pytest.approx(time.now + SLICE_S)


@in_a_loop
async def test_slices_are_granted_again_without_a_socket_read_after_the_longest_iteration(time: Time) -> None:
    one = FairQueue()
    assert one.slice_now(time.now)
    time.now += SLICES_PER_ITERATION * SLICE_S + MAX_ITERATION_S
    assert one.slice_now(time.now)


@in_a_loop
async def test_no_slice_without_waiting_while_others_wait(time: Time) -> None:
    waiting = asyncio.ensure_future(fair_queue().wait_slice())
    await asyncio.sleep(0)
    assert not fair_queue().slice_now(time.now)
    await waiting
    await asyncio.sleep(0)
    assert fair_queue().slice_now(time.now)


def test_closed_event_loop_is_released() -> None:
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        await fair_queue().wait_slice()
        await fair_queue().wait_turn()

    loop.run_until_complete(wait())
    loop.close()
    reference = weakref.ref(loop)
    del loop
    gc.collect()
    assert reference() is None


@in_a_loop
async def test_cancelled_waiter_does_not_delay_the_next(time: Time) -> None:
    first, second = (asyncio.ensure_future(fair_queue().wait_turn()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == pytest.approx(time.now + TURN_S)


@in_a_loop
async def test_turn_ends_when_its_time_is_used_up(time: Time) -> None:
    own = TimeSlice()
    assert not own.is_over
    time.now += FIRST_SLICE_S
    assert own.is_over
    await own.wait_turn()
    assert not own.is_over
    time.now += TURN_S - STEP_S
    assert not own.is_over
    time.now += 2 * STEP_S
    assert own.is_over


@in_a_loop
async def test_waiters_woken_by_one_event_begin_over_many_rounds(time: Time) -> None:
    woken = asyncio.get_running_loop().create_future()

    async def poll() -> None:
        await woken
        if not fair_queue().slice_now(time.now):
            await fair_queue().wait_slice()
        time.now += SLICE_S

    tasks = [asyncio.create_task(poll()) for _ in range(400)]
    await asyncio.sleep(0)
    woken.set_result(None)
    assert await longest_round(time, tasks) <= (SLICES_PER_ITERATION + 1) * SLICE_S + STEP_S
    assert time.now == pytest.approx(1.0 + 400 * SLICE_S)
