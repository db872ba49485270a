"""Periodic tasks of a broker, of which one fails at every tick."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.startup.periodic_tasks import PeriodicTasks

TASKS = {
    "logs.tick": "the housekeeping of logs",
    "groups.tick": "the housekeeping of groups",
    "transactions.tick": "the housekeeping of transactions",
    "transaction_ends.complete_soon": "the completion of transactions",
    "share_coordinator.snapshot_cold_if_due": "the snapshots of share partitions",
    "share_coordinator.prune_if_due": "the pruning of the share state",
}


def broker_with(calls: list[str], failing: str) -> Any:
    """Return a broker that appends the name of each task to `calls`, and whose task `failing` then fails."""
    parts: dict[str, SimpleNamespace] = {"clock": SimpleNamespace(now_ms=lambda: 0)}

    def called(name: str) -> None:
        calls.append(name)
        if name == failing:
            raise RuntimeError("on purpose")

    async def called_in_a_task(name: str) -> None:
        called(name)

    for name in TASKS:
        part, method = name.split(".")
        run: Any = called_in_a_task if method == "prune_if_due" else called
        if method == "snapshot_cold_if_due":

            def run(name: str) -> Any:
                called(name)
                yield

        setattr(parts.setdefault(part, SimpleNamespace()), method, lambda *_, run=run, name=name: run(name))
    return SimpleNamespace(**parts)


@pytest.mark.parametrize("failing", TASKS)
def test_failing_task_is_logged_by_name_and_does_not_stop_the_others(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    asyncio.run(PeriodicTasks(broker_with(calls, failing), LoopWatch()).run_due())
    assert calls == list(TASKS)
    assert [record.getMessage() for record in caplog.records] == [
        f"{TASKS[failing]} failed; it runs again at the next tick"
    ]
