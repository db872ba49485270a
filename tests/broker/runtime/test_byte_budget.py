"""Leases of a byte budget: order, limit, and release when a waiter is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkalog_broker.runtime.byte_budget import ByteBudget, Lease
from tests.broker.net.helpers.fakes import in_a_loop, settle


async def begun(coroutine: Coroutine[Any, Any, Lease]) -> asyncio.Task[Lease]:
    task = asyncio.create_task(coroutine)
    await settle()
    return task


@in_a_loop
async def test_leases_beyond_the_limit_wait_in_order() -> None:
    budget = ByteBudget(10)
    first, second = await budget.acquire(6), await budget.acquire(4)
    large, small = await begun(budget.acquire(9)), await begun(budget.acquire(1))
    assert first.is_wanted
    second.release()
    await settle()
    assert not large.done()
    assert not small.done(), "it came later"
    first.release()
    assert (await large).size == 9
    assert (await small).size == 1
    assert not first.is_wanted
    assert budget.used == 10


@in_a_loop
async def test_lease_larger_than_the_limit_is_granted_alone() -> None:
    budget = ByteBudget(10)
    one = await budget.acquire(1)
    whole = await begun(budget.acquire(100))
    assert not whole.done()
    one.release()
    assert (await whole).size == 100


@in_a_loop
async def test_resized_lease_counts_its_new_size_and_released_lease_nothing() -> None:
    budget = ByteBudget(10)
    lease = await budget.acquire(10)
    waiting = await begun(budget.acquire(5))
    lease.resize(5)
    assert (await waiting).size == 5
    lease.resize(50)
    assert budget.used == 55
    lease.release()
    lease.release()
    assert budget.used == 5


@in_a_loop
async def test_cancelled_wait_holds_nothing_and_lets_others_in() -> None:
    budget = ByteBudget(10)
    first = await budget.acquire(10)
    cancelled, behind = await begun(budget.acquire(10)), await begun(budget.acquire(1))
    cancelled.cancel()
    await settle()
    assert not behind.done()
    first.release()
    assert (await behind).size == 1
    given = await begun(budget.acquire(9))
    late = asyncio.create_task(budget.acquire(1))
    await asyncio.sleep(0)
    (await given).release()  # `late` has its lease now, and is cancelled before it learns that
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert budget.used == 1
