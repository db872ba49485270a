"""Periodic work of a broker: due tasks of its parts, and the reload of certificate files."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter

from kafkalog_broker.broker import Broker
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.runtime.fair_scheduling import run_in_slices
from kafkalog_broker.storage.housekeeping import RETENTION_CHECKS_PER_TICK

_FLUSH_POLL_INTERVAL_S = 0.01  # interval at which `catch_up` checks for the end of flushes that retention waits for

_logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs the due work of all parts of a broker."""

    def __init__(self, broker: Broker, watch: LoopWatch) -> None:
        self._broker = broker
        self._watch = watch

    async def run_due(self) -> None:
        """Run the tasks that are due now, or a part of them if they are many. Exceptions are logged."""
        broker = self._broker
        began = perf_counter()
        now_ms = broker.clock.now_ms()
        try:
            broker.logs.tick(now_ms)
            broker.groups.tick()
            broker.transactions.tick(now_ms)
            broker.transaction_ends.complete_soon()
        except Exception:
            _logger.exception("a periodic task failed and is tried again")
        self._watch.note_task("periodic tasks", perf_counter() - began)
        try:
            await run_in_slices(broker.share_coordinator.snapshot_cold_if_due())
            await broker.share_coordinator.prune_if_due()
        except Exception:
            _logger.exception("a periodic task failed and is tried again")

    async def catch_up(self) -> None:
        """Run all tasks that are due after a test has advanced the clock."""
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
