"""Apache Kafka loads states that a power cut may leave of our directory, also after our broker has recovered them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.manual_clock import ManualClock
from tests.crash_states.broker_thread import BrokerThread
from tests.crash_states.disk import StateKind, write_tree
from tests.crash_states.ledger import expected_values
from tests.crash_states.search import states_of
from tests.crash_states.state_check import state_tree
from tests.crash_states.world import LOGS, Mode, Run, Workload, World, in_directory, record
from tests.interop import consume
from tests.interop.real_kafka import RealKafka, available

pytestmark = [
    pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.slow, pytest.mark.timeout(1800),
]  # fmt: skip

TOPIC, PARTITIONS = "orders", 2
PROPERTIES = {"node.id": 1, "log.segment.bytes": 1 << 20, "offsets.topic.num.partitions": 1}
STATES = 4


def writes(world: World) -> None:
    """Plain and transactional producers, in topics that Kafka has made."""
    world.start()

    def transactional(number: int) -> None:
        producer = world.session().transactional_producer(f"producer-{number}", 1 + number)
        for turn in range(4):
            for partition in range(PARTITIONS):
                producer.produce((TOPIC, partition), world.values(2))
            producer.end(commit=turn % 2 == 0)

    def plain() -> None:
        producer = world.session().producer()
        for turn in range(8):
            producer.produce((TOPIC, turn % PARTITIONS), world.values(2))

    world.in_parallel(lambda: transactional(0), lambda: transactional(1), plain)


def made_by_kafka(directory: Path) -> RealKafka:
    """A stopped Kafka with the topics of `writes` and its internal topics."""
    kafka = RealKafka(directory, short_lived=True)
    with kafka:
        kafka.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 1000, "index.interval.bytes": 200})
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes the topic of offsets"})
        consume.commit(consumer, [TopicPartition(TOPIC, 0, 0)])
        consumer.close()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": "makes the topic of transactions"}
        )
        producer.init_transactions(60)
    return kafka


def recover(state: Path, run: Run) -> None:
    """Start our broker on the state and stop it."""
    broker = BrokerThread(in_directory(run.properties, state), ManualClock(run.now_ms + 1000))
    broker.start()
    broker.stop()


@pytest.mark.parametrize("is_recovered", [False, True], ids=["as it is", "recovered by our broker"])
def test_kafka_loads_states_after_a_power_cut(tmp_path: Path, is_recovered: bool) -> None:
    kafka = made_by_kafka(tmp_path / "kafka")
    run = record(Workload("interop", writes, PROPERTIES), Mode.STRICT, seed=1, initial=kafka.data_dir)
    states = [state for state in states_of(run, 100, seed=5) if state.kind is not StateKind.EVERYTHING][:STATES]
    for state in states:
        target = tmp_path / f"state-{state.point}"
        write_tree(state_tree(run, *state), target)
        if is_recovered:
            recover(target, run)
        shutil.rmtree(kafka.data_dir)
        (target / LOGS).rename(kafka.data_dir)
        kafka.start()
        try:
            compare(kafka, run, state.point, f"state {state}")
        finally:
            kafka.stop()


def compare(kafka: RealKafka, run: Run, point: int, state: str) -> None:
    """Every acknowledged record is there, none is that was not sent, and none of an aborted or open transaction."""
    for isolation_level in ("read_uncommitted", "read_committed"):
        rows = kafka.consume(TOPIC, isolation_level=isolation_level)
        for number in range(PARTITIONS):
            batches = list(run.ledger.of_partition((TOPIC, number)))
            expected = expected_values(batches)
            found = {row["offset"]: row["value"] for row in rows if row["partition"] == number}
            assert found == {offset: expected[offset][0] for offset in found}, f"{state}: {TOPIC}-{number}"
            shown = {id(expected[offset][1]) for offset in found}
            for batch in batches:
                transaction = batch.transaction
                if isolation_level == "read_uncommitted":
                    wanted, allowed = batch.acked_at < point, batch.sent_at < point
                else:  # up to the first open transaction, which waits for its timeout
                    is_decided = transaction is None or transaction.must_be_visible(point)
                    wanted = is_decided and batch.acked_at < point and batch.until <= max(found, default=0)
                    allowed = transaction is None or transaction.may_be_visible(point)
                assert id(batch) in shown or not wanted, f"{state}: {batch} is lost for {isolation_level}"
                assert id(batch) not in shown or allowed, f"{state}: {batch} is shown for {isolation_level}"
