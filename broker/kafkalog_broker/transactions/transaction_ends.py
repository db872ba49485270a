"""Completion of prepared transactions, in an order that survives crashes and power cuts.

The outcome, the markers and the completion are written in this order. With the default flush policy all of them are in
the page cache before the response to the producer, so a transaction that `kill -9` interrupts is completed by the next
start. With flush.messages=1 each step is on disk before the next one is appended: the outcome before the first marker,
and all markers before the completion. Otherwise a flush for another transaction in the same partition could put a later
step on disk without an earlier one. Kafka has the same order, because its appends flush.
"""

from __future__ import annotations

import asyncio
import logging

from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.coordinator_log import LogOf
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import EVERY_APPEND
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator

_log = logging.getLogger(__name__)

_RETRY_DELAY_S = (
    0.1  # delay before outstanding markers are retried, as long as clients wait after CONCURRENT_TRANSACTIONS
)


class TransactionEnds:
    """Writes the markers of prepared transactions and completes them. Not thread-safe; call from the event loop."""

    def __init__(self, coordinator: TransactionCoordinator, log_of: LogOf, flushes: LogFlushes) -> None:
        """`flushes` must be those of the coordinator."""
        self._coordinator = coordinator
        self._log_of = log_of
        self._flushes = flushes
        self._running: dict[str, asyncio.Event] = {}  # by transactional ID: set when the running completion ends
        self._timer: asyncio.TimerHandle | None = None
        self._completing_all: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def flush(self, transactional_id: str) -> None:
        """Return when the last record of a transactional ID is on disk, or if flush.messages is not 1.

        Raises:
            BrokerError: If it cannot be flushed, with the error code for clients.
        """
        while (unflushed := self._coordinator.unflushed(transactional_id)) is not None:
            try:
                await self._flushes.flush(unflushed.log, unflushed.end)
            except BrokerError as error:
                raise BrokerError(coordinator_error_code(error.code), error.what) from error

    async def complete(self, transactional_id: str) -> None:
        """Complete a prepared transaction; schedule a retry if not all markers can be written now.

        No-op if the transaction is not prepared. If another caller is completing it, wait for that.
        """
        if not self._coordinator.is_prepared(transactional_id):
            return
        ended = self._running.get(transactional_id)
        if ended is not None:
            await ended.wait()
            return
        ended = self._running[transactional_id] = asyncio.Event()
        try:
            is_complete = await self._try_complete(transactional_id)
        except BrokerError as error:
            _log.warning(
                "transactional id %.200r: the transaction cannot be completed yet: %s", transactional_id, error
            )
            is_complete = False
        finally:
            del self._running[transactional_id]
            ended.set()
        if not is_complete:
            self.complete_soon(_RETRY_DELAY_S)

    async def _try_complete(self, transactional_id: str) -> bool:
        """Return False if a marker is outstanding."""
        coordinator = self._coordinator
        await self.flush(transactional_id)
        if not coordinator.is_prepared(transactional_id):
            return True  # __transaction_state was deleted during the flush
        marked = coordinator.write_markers(transactional_id)
        flushes = []
        for partition in marked:
            try:
                marked_log = self._log_of(*partition)
            except BrokerError:
                continue  # the partition was deleted
            if marked_log.config.flush_messages == EVERY_APPEND:
                flushes.append(self._flushes.flush(marked_log, marked_log.log_end_offset))
        if flushes:
            # A failure takes the log offline. The marker is written again when the log is online again.
            await asyncio.gather(*flushes)
            if not coordinator.is_prepared(transactional_id):
                return True
        return coordinator.complete(transactional_id, marked)

    def complete_soon(self, delay_s: float = 0.0) -> None:
        """Complete all prepared transactions in a task, after a delay."""
        if self._timer is None and not self._is_stopped and self._coordinator.prepared:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._start_completing_all)

    def _start_completing_all(self) -> None:
        self._timer = None
        if self._completing_all is None or self._completing_all.done():
            self._completing_all = asyncio.create_task(self._complete_all())
        else:
            self.complete_soon(_RETRY_DELAY_S)

    async def _complete_all(self) -> None:
        for transactional_id in self._coordinator.prepared:
            await self.complete(transactional_id)

    async def stop(self) -> None:
        """Stop completing. Transactions that stay prepared are completed after the next start."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._completing_all is not None:
            await asyncio.gather(self._completing_all, return_exceptions=True)
