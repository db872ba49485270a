"""A damaged or missing .txnindex or .snapshot is made again from the log: read_committed sees what it saw before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_requests import (
    END,
    FETCH,
    FIND_COORDINATOR,
    INIT,
    PRODUCE,
    READ_COMMITTED,
    TIMEOUT_MS,
    TOPIC,
    batch,
    fetch_fields,
    produce_fields,
)


class Bank:
    def __init__(self, broker: BrokerInProcess) -> None:
        self.broker = broker

    def ask(self, key: int, version: int, **fields: object):
        ids = {TOPIC: self.broker.broker.topics.get(TOPIC).id}  # type: ignore[union-attr]
        return self.broker.ask(request_entity(key, version, fields, ids))

    def transact(self, name: str, committed: bool | None) -> None:
        """Two records; None leaves them open."""
        init = {"transactional_id": name, "transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        begun = self.ask(INIT, 5, **init)
        who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        now = self.broker.clock.now_ms()
        records = batch(2, 0, transactional=True, timestamp=now, **who)
        self.ask(PRODUCE, 12, **produce_fields(name, 0, records))
        if committed is not None:
            self.ask(END, 5, transactional_id=name, committed=committed, **who)

    def seen(self) -> tuple[int, list[tuple[int, int]], int]:
        answer = self.ask(FETCH, 12, **fetch_fields(0, 0, READ_COMMITTED))
        told = answer.responses[0].partitions[0]
        aborted = [(one.producer_id, one.first_offset) for one in told.aborted_transactions]
        return told.last_stable_offset, aborted, len(told.records)

    def wait_until_served(self) -> None:
        """A log whose files are damaged is recovered in a thread."""
        deadline = time.monotonic() + 60
        while self.ask(FETCH, 12, **fetch_fields(0, 0, READ_COMMITTED)).responses[0].partitions[0].error_code:
            assert time.monotonic() < deadline
            self.broker.run(asyncio.sleep(0.01))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


def written(directory: Path, how_it_stops: str):
    """Write commits, aborts and an open transaction; return the records that read_committed sees."""
    with BrokerInProcess(directory) as broker:
        broker.run(broker.broker.ensure_topic(TOPIC, 1, {}))
        broker.ask(request_entity(FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["any"]}, {}))
        bank = Bank(broker)
        for number in range(6):
            bank.transact(f"t{number}", committed=number % 2 == 0)
        bank.transact("open", committed=None)
        seen = bank.seen()
    if how_it_stops == "crash":
        (directory / ".kafka_cleanshutdown").unlink()
    return seen


def damage(path: Path, how: str) -> None:
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "flipped":
        data = bytearray(path.read_bytes())
        data[1] ^= 0x40  # the version
        path.write_bytes(data)
    else:
        path.unlink()


# After a clean stop a missing file looks as if there never was one, to Kafka too.
@pytest.mark.parametrize(
    ("how", "stop"),
    [("cut", "clean stop"), ("flipped", "clean stop"), ("cut", "crash"), ("flipped", "crash"), ("missing", "crash")],
)
@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
def test_damaged_files_do_not_change_read_committed_records(directory: Path, suffix: str, how: str, stop: str) -> None:
    before = written(directory, stop)
    assert before[0] > 0
    assert len(before[1]) == 3
    (path,) = (directory / f"{TOPIC}-0").glob("*" + suffix)
    damage(path, how)
    with BrokerInProcess(directory) as broker:
        bank = Bank(broker)
        bank.wait_until_served()
        assert bank.seen() == before
        broker.clock.advance(TIMEOUT_MS * 100)
        broker.tick()  # the open one times out, and nothing hangs
        log = broker.broker.log(TOPIC, 0)
        assert log.last_stable_offset == log.high_watermark
        assert len(bank.seen()[1]) == 4
