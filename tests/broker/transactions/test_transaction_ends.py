"""Several callers that complete one transaction: the request that ended it, and the task that completes all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_coordinator import UnflushedRecord
from kafkalog_broker.transactions.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.transaction_metadata import CLASSIC
from tests.broker.net.helpers.fakes import in_a_loop, settle
from tests.broker.transactions.helpers.ledger import ALL, Ledger


class Disk:
    """As LogFlushes: a flush ends when the test says so."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def flush(self, *_: Any) -> None:
        await self.done.wait()


def no_log(topic: str, partition: int) -> Any:
    """The partitions have no logs here to flush."""
    raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no {topic}-{partition}")


@in_a_loop
async def test_caller_waits_while_another_one_completes_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, disk = Ledger(), Disk()
    coordinator = ledger.coordinator
    producer = coordinator.init_producer_id("t", 60_000, None)
    coordinator.add_partitions("t", producer, ALL, CLASSIC)
    coordinator.end("t", producer, commit=True, client_version=CLASSIC)
    record = UnflushedRecord(Any, 1)  # type: ignore[arg-type]
    monkeypatch.setattr(coordinator, "unflushed", lambda _: None if disk.done.is_set() else record)
    flushes: Any = disk
    ends = TransactionEnds(coordinator, no_log, flushes)
    callers = [asyncio.ensure_future(ends.complete("t")) for _ in range(2)]
    await settle()
    assert not any(caller.done() for caller in callers)
    assert not ledger.markers, "the decision is not on disk"
    disk.done.set()
    await asyncio.gather(*callers)
    assert len(ledger.markers) == len(ALL)
    assert not coordinator.prepared
