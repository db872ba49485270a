"""How transactions end, in the order in which it must be on disk: the decision, the markers, that it is done.

With the default flush policy nothing here waits: all of it is in the page cache before the producer's answer leaves, in
this order, so that kill -9 at any point leaves a transaction that the next start completes. Where flush.messages=1 asks
for it, the decision is on disk before the first marker is written, and the markers before the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafkalog_broker.coordinator.coordinator_log import LogOf
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_metadata import EndMarker, TopicPartition, WriteMarker
from kafkalog_spark.format.names import OFFSETS_TOPIC

_logger = logging.getLogger(__name__)

_RETRY_S = 0.1
"""Until partitions that took no marker are asked again: as long as clients wait after CONCURRENT_TRANSACTIONS."""


class TransactionEnds:
    """Completes what the transaction coordinator has prepared. All calls come from the event loop's thread."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        log_of: LogOf,
        flush_if_due: Callable[[Log], Awaitable[None]],
    ) -> None:
        self._coordinator = coordinator
        self._log_of = log_of
        self._flush_if_due = flush_if_due
        self._retry: asyncio.TimerHandle | None = None
        self._completing: asyncio.Task[None] | None = None
        self._stopped = False

    async def complete(self, transactional_id: str) -> None:
        """Complete a prepared transaction, as far as its partitions take markers now; the rest is tried again."""
        transactions, runtime = self._coordinator, self._coordinator.runtime
        if transactional_id not in transactions.prepared:
            return
        try:
            log = runtime.log.log(runtime.partition_for(transactional_id))
            await self._flush_if_due(log)
            while log.high_watermark < log.log_end_offset:  # a decision that came while the last ones were flushed
                await self._flush_if_due(log)
            is_prepared = transactional_id in transactions.prepared
            partitions = transactions.describe(transactional_id).partitions if is_prepared else ()
            done = transactions.complete(transactional_id)
            for partition in partitions:
                try:
                    marked = self._log_of(*partition)
                except BrokerError:
                    continue  # deleted, or offline: there is nothing to flush
                await self._flush_if_due(marked)
        except BrokerError as error:
            _logger.warning("the transaction of %r is not complete yet: %s", transactional_id, error)
            done = False
        if not done:
            self.complete_soon(_RETRY_S)

    def complete_soon(self, delay_s: float = 0.0) -> None:
        """Complete all that is prepared in a task of its own."""
        if self._retry is None and not self._stopped and self._coordinator.prepared:
            self._retry = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._retry = None
        if self._completing is None or self._completing.done():
            self._completing = asyncio.create_task(self._complete_all())
        else:
            self.complete_soon(_RETRY_S)

    async def _complete_all(self) -> None:
        for transactional_id in self._coordinator.prepared:
            await self.complete(transactional_id)

    async def stop(self) -> None:
        """Stop; prepared transactions are completed after the next start."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._completing is not None:
            await asyncio.gather(self._completing, return_exceptions=True)


def marker_writer(offsets: GroupCoordinator, log_of: LogOf, clock: Clock) -> WriteMarker:
    """Writes markers into partitions that are here; offsets that a transaction has committed count from the moment at
    which its marker is in __consumer_offsets."""

    def write(partition: TopicPartition, marker: EndMarker) -> None:
        is_offsets = partition.topic == OFFSETS_TOPIC
        if is_offsets:
            offsets.runtime.check_loaded(partition.partition)
        log_of(*partition).append_control(
            marker.control_type, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, clock.now_ms(),
            transaction_version=marker.transaction_version,
        )  # fmt: skip
        if is_offsets:
            offsets.end_transaction(partition.partition, marker.producer_id, commit=marker.commit)

    return write
