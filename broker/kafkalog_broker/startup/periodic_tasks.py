"""What a broker does periodically: housekeeping of logs, groups, transactions and share state, and the reload of
certificate files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from kafkalog_broker.broker import Broker
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.runtime.fair_scheduling import run_in_slices
from kafkalog_broker.storage.housekeeping import RETENTION_CHECKS_PER_TICK

_FLUSH_POLL_INTERVAL_S = 0.01
"""How often `catch_up` checks whether the flushes that retention waits for have ended."""

_logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs the due work of all parts of a broker."""

    def __init__(self, broker: Broker, watch: LoopWatch) -> None:
        self._broker = broker
        self._watch = watch

    async def run_due(self) -> None:
        """Run the tasks that are due now, or a part of them if they are many.

        An exception is logged, and the other tasks run nevertheless.
        """
        broker = self._broker
        began = perf_counter()
        now_ms = broker.clock.now_ms()
        with _logging_failure("the housekeeping of logs"):
            broker.logs.tick(now_ms)
        with _logging_failure("the housekeeping of groups"):
            broker.groups.tick()
        with _logging_failure("the housekeeping of transactions"):
            broker.transactions.tick(now_ms)
        with _logging_failure("the completion of transactions"):
            broker.transaction_ends.complete_soon()
        self._watch.record_duration("periodic tasks", perf_counter() - began)
        # These tasks release the event loop in between, so their duration is not that of one step of the loop.
        with _logging_failure("the snapshots of share partitions"):
            await run_in_slices(broker.share_coordinator.snapshot_cold_if_due())
        with _logging_failure("the pruning of the share state"):
            await broker.share_coordinator.prune_if_due()

    async def catch_up(self) -> None:
        """Run all tasks that are due after a test has advanced the clock. Waits for flushes that retention needs."""
        logs = self._broker.logs
        for _ in range(1 + len(logs.partitions()) // RETENTION_CHECKS_PER_TICK):
            await self.run_due()
            await asyncio.sleep(0)
        while logs.retention_waits_for_flush:
            await asyncio.sleep(_FLUSH_POLL_INTERVAL_S)
            await self.run_due()

    async def reload_certificates(self) -> None:
        """Use certificate files that have changed for new connections."""
        broker = self._broker
        async with broker.alteration_lock:  # a change of the configuration also makes new TLS contexts
            changed = await broker.run_blocking(broker.tls.changed_files)
            if changed is not None:
                broker.tls.use(changed)


@contextmanager
def _logging_failure(task: str) -> Iterator[None]:
    """Log an exception of a task, which is tried again at the next tick."""
    try:
        yield
    except Exception:
        _logger.exception("%s failed; it runs again at the next tick", task)
