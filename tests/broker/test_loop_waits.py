"""Nothing in the event loop waits for the disk: no fsync, and no lock that a flush may hold."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.broker import Broker
from kafkalog_broker.storage.cluster_producer_ids import BLOCK
from kafkalog_spark.log.write.encoded_batch import build_batch
from tests.broker.api.helpers import admin_scenario as admin
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.net.helpers.served import produce_request
from tests.broker.storage.helpers.stored_logs import append_records
from tests.log.helpers.batch_builder import V2Record, batch

INIT_PRODUCER_ID = 22


@pytest.fixture
def broker(tmp_path: Path):
    with BrokerInProcess(tmp_path / "data", {"offsets.topic.num.partitions": "2"}) as made:
        yield made


def ask(broker: BrokerInProcess, step: Any) -> Any:
    key, versions, values = step
    return broker.ask(request_entity(key, versions[-1], values, {}))


def new_producer_id(broker: BrokerInProcess) -> int:
    values = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    answer = broker.ask(request_entity(INIT_PRODUCER_ID, 4, values, {}))
    assert int(answer.error_code) == 0
    producer_id: int = answer.producer_id
    return producer_id


def produce(broker: BrokerInProcess, topic: str, *, timestamp: int | None = None) -> None:
    now_ms = broker.clock.now_ms() if timestamp is None else timestamp
    data = batch(0, [V2Record(0, now_ms, b"k", bytes(300))], leader_epoch=-1)
    (told,) = broker.ask(produce_request(topic, data)).responses[0].partition_responses
    assert int(told.error_code) == 0


def test_topic_creation_use_and_deletion_do_not_block_the_loop(broker: BrokerInProcess) -> None:
    configs = {"flush.messages": "1", "internal.segment.bytes": "1000", "retention.ms": "60000"}
    for _ in range(2):  # the second one has a name that checkpoints speak of
        ask(broker, admin.create(admin.new_topic("orders", 3, configs=configs)))
        ask(broker, admin.create(admin.new_topic("keys", 1, configs={**configs, "cleanup.policy": "compact"})))
        for _ in range(10):
            produce(broker, "orders")
            produce(broker, "keys")
        ask(broker, admin.more(admin.total("orders", 5)))
        changed = admin.change(admin.TOPIC, "orders", ("flush.messages", admin.SET, "100"))
        ask(broker, admin.incremental(changed))
        ask(broker, admin.incremental(admin.change(admin.BROKER, "", ("message.max.bytes", admin.SET, "2000000"))))
        deleted = {"topics": [admin.records("orders", p0=5)], "timeout": 1000}
        broker.ask(request_entity(admin.DELETE_RECORDS, 2, deleted, {}))
        for _ in range(5):
            produce(broker, "orders")
        broker.clock.advance(400_000)
        broker.tick()  # retention, checkpoints, flushes, expiry
        broker.clock.advance(400_000)
        broker.tick()
        ask(broker, admin.delete("orders"))
        ask(broker, admin.delete("keys"))
        broker.clock.advance(100_000)
        broker.tick()


def test_producer_ids_are_fetched_ahead_in_a_thread(broker: BrokerInProcess) -> None:
    assert [new_producer_id(broker) for _ in range(2 * BLOCK + 10)] == list(range(2 * BLOCK + 10))


def test_topic_deletion_does_not_wait_for_a_flush_in_progress(
    broker: BrokerInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    sync = os.fdatasync

    def slow(fd: int) -> None:
        began.set()
        assert may_end.wait(120)
        sync(fd)

    ask(broker, admin.create(admin.new_topic("orders")))
    produce(broker, "orders")
    log = broker.broker.log("orders", 0)

    async def go() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", slow)
            flushing = asyncio.create_task(broker.broker.run_blocking(log.flush))
            await asyncio.to_thread(began.wait, 120)
            broker.broker.logs.detach([("orders", 0)])
            assert log.is_closed
            assert log.segments[0].writer is not None, "the flush is using it"
            may_end.set()
            await asyncio.gather(flushing, return_exceptions=True)
        assert log.segments[0].writer is None, "whoever ends the flush closes the files"

    broker.run(go())


def test_topic_creation_waits_for_the_deletion_of_a_topic_with_its_name(
    broker: BrokerInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalog_broker.admin.topic_creation import ensure_topic
    from kafkalog_broker.admin.topic_deletion import delete_topics
    from kafkalog_broker.storage.partition_removal import PartitionRemoval

    may_go_on = threading.Event()
    finish = PartitionRemoval.finish

    def slow(self: PartitionRemoval) -> int:
        assert may_go_on.wait(120)
        return finish(self)

    async def go(made: Broker) -> None:
        first = await ensure_topic(made, "orders", 2, {})
        monkeypatch.setattr(PartitionRemoval, "finish", slow)
        leaving = asyncio.create_task(delete_topics(made, ["orders"]))
        while "orders" in made.topics:
            await asyncio.sleep(0)
        coming = asyncio.create_task(ensure_topic(made, "orders", 2, {}))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not coming.done()
        assert "orders" not in made.topics
        may_go_on.set()
        await leaving
        assert (await coming).id != first.id
        assert append_records(made.log("orders", 1), [(b"k", b"v")], 1).base_offset == 0

    broker.run(go(broker.broker))


def test_roll_writes_the_producer_snapshot_in_the_flush(
    broker: BrokerInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop only copies the list of the 100,000 producers; writing their snapshot would block it."""
    from kafkalog_broker.storage.partition import local_log
    from kafkalog_spark.format.producer_snapshot import write_producer_snapshot

    ask(broker, admin.create(admin.new_topic("orders")))
    produce(broker, "orders")
    log = broker.broker.log("orders", 0)
    header = build_batch([(b"k", b"v")], 1, producer_epoch=0, base_sequence=0).header
    for producer_id in range(100_000):
        log.producer_state.apply(header._replace(producer_id=producer_id))
    threads: list[threading.Thread] = []

    def watched(*args: Any, **options: Any) -> None:
        threads.append(threading.current_thread())
        write_producer_snapshot(*args, **options)

    monkeypatch.setattr(local_log, "write_producer_snapshot", watched)

    async def go() -> None:
        log.local.roll(broker.clock.now_ms())
        assert threads == []
        await broker.broker.run_blocking(log.flush)

    broker.run(go())
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
