"""Appends of producers' batches: validation in the event loop or on a worker thread, the append, and the flush.

Corresponds to Kafka's `ReplicaManager.appendRecords` and `UnifiedLog.appendAsLeader`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.message_set_validation import validate_message_set
from kafkalog_broker.storage.append.validation_budget import TakesTooLong, event_loop_budget
from kafkalog_broker.storage.partition.log import AppendInfo, Log
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.log.write.encoded_batch import EncodedBatch

_NOTHING_APPENDED = -1


class ProducerTransaction(Protocol):
    """Transaction of a Produce request."""

    def admits(self, log: Log, header: BatchHeader) -> bool:
        """Return whether a batch may be appended now. If not, the caller awaits `flush` and calls this again.

        Raises:
            BrokerError: If the batch does not belong to an open transaction that includes the partition.
        """

    async def flush(self) -> None:
        """Flush the record that adds the partition to the transaction. Raises BrokerError."""


@dataclass(frozen=True, slots=True)
class Appender:
    """Validates and appends producers' batches. Used from the event loop.

    Attributes:
        workers: Threads for batches whose validation would block the event loop for too long.
        flush_if_due: Flushes a log if its configuration demands it, and returns when the response may be sent.
    """

    workers: Workers
    clock: Clock
    flush_if_due: Callable[[Log], Awaitable[None]]

    def append(
        self, log: Log, records: memoryview, transaction: ProducerTransaction | None
    ) -> AppendInfo | Coroutine[Any, Any, AppendInfo]:
        """Validate the v2 batch of one partition and append it.

        Most batches are small and need no flush. Their result is returned without a coroutine.

        Args:
            log: Log of the partition.
            records: Records of the partition in the request.
            transaction: Transaction of the request; None without a transactional ID.

        Returns:
            The result, or a coroutine that returns it if a worker thread must validate the batch or the log must be
            flushed. The coroutine raises the same errors.

        Raises:
            BrokerError: As `validate_batch`, `ProducerTransaction.admits` and `Log.append`.
        """
        now_ms = self.clock.now_ms()
        budget = event_loop_budget(records)
        if budget is None:
            return self._validate_in_thread_and_append(log, records, transaction, now_ms)
        try:
            batch = validate_batch(records, log.config, now_ms, budget)
        except TakesTooLong:
            return self._validate_in_thread_and_append(log, records, transaction, now_ms)
        if batch.header.is_transactional and not _admits(transaction, log, batch.header):
            return self._append_when_admitted(log, batch, transaction, now_ms)
        info = log.append(batch, now_ms)
        return self._flush(log, info) if log.needs_flush(now_ms) else info

    async def append_message_set(
        self, log: Log, message_set: memoryview, transaction: ProducerTransaction | None
    ) -> AppendInfo:
        """Convert the message set of one partition, in format v0 or v1, into a v2 batch and append it.

        Returns:
            The result; its offsets are -1 if the set contains no whole message.

        Raises:
            BrokerError: As `validate_message_set` and `append`.
        """
        now_ms = self.clock.now_ms()
        batch = await self.workers.run_computing(validate_message_set, message_set, log.config, now_ms)
        if batch is None:
            return AppendInfo(_NOTHING_APPENDED, _NOTHING_APPENDED, _NOTHING_APPENDED, log.log_start_offset)
        return await self._append_when_admitted(log, batch, transaction, now_ms)

    async def _validate_in_thread_and_append(
        self, log: Log, records: memoryview, transaction: ProducerTransaction | None, now_ms: int
    ) -> AppendInfo:
        batch = await self.workers.run_computing(validate_batch, records, log.config, now_ms)
        return await self._append_when_admitted(log, batch, transaction, now_ms)

    async def _append_when_admitted(
        self, log: Log, batch: EncodedBatch, transaction: ProducerTransaction | None, now_ms: int
    ) -> AppendInfo:
        """Append a valid batch. There must be no await between `admits` and the append."""
        while batch.header.is_transactional and not _admits(transaction, log, batch.header):
            assert transaction is not None
            await transaction.flush()
        info = log.append(batch, now_ms)
        return await self._flush(log, info) if log.needs_flush(now_ms) else info

    async def _flush(self, log: Log, info: AppendInfo) -> AppendInfo:
        await self.flush_if_due(log)
        return info


def _admits(transaction: ProducerTransaction | None, log: Log, header: BatchHeader) -> bool:
    if transaction is None:
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed,
            "the batch is transactional, but the request has no transactional id",
        )
    return transaction.admits(log, header)
