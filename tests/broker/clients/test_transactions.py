"""Transactions with librdkafka: commit, abort, fencing, timeouts, offsets, and what read_committed consumers see."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker, running_broker

pytestmark = pytest.mark.end_to_end

WAIT = 120
"""Seconds for what takes one on an idle machine."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    properties = {
        "num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with running_broker(properties) as running:
        yield running


def producer(broker: RunningBroker, transactional_id: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **settings}
    )
    made.init_transactions(WAIT)
    return made


def consumer(broker: RunningBroker, group: str, isolation: str = "read_committed", **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": group, "isolation.level": isolation,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True, **settings,
        }
    )  # fmt: skip


def consume_to_the_end(broker: RunningBroker, topic: str, isolation_level: str = "read_committed", partitions: int = 2):
    """Consume up to the end for the isolation level; return (partition, value) by offset."""
    reader = consumer(broker, f"all of {topic}", isolation_level, **{"fetch.wait.max.ms": 10})
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[tuple[int, int, bytes]] = []
    ended: set[int] = set()
    end = time.monotonic() + WAIT
    while len(ended) < partitions:
        assert time.monotonic() < end, f"partitions {ended} of {topic} have ended"
        message = reader.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append((message.partition(), message.offset(), message.value()))
    reader.close()
    return [(partition, value) for partition, _, value in sorted(found)]


def test_read_committed_consumer_gets_committed_records_only(broker: RunningBroker) -> None:
    one = producer(broker, "commit-and-abort")
    for number in range(20):
        one.begin_transaction()
        for partition in (0, 1):
            one.produce("visible", b"%d" % number, partition=partition)
        if number % 3:
            one.commit_transaction(WAIT)
        else:
            one.flush(WAIT)  # else librdkafka purges what it has not sent, and nothing is aborted
            one.abort_transaction(WAIT)
    kept = [b"%d" % number for number in range(20) if number % 3]
    assert consume_to_the_end(broker, "visible") == [(partition, value) for partition in (0, 1) for value in kept]
    assert len(consume_to_the_end(broker, "visible", "read_uncommitted")) == 40


def test_read_committed_consumer_stops_at_an_open_transaction(broker: RunningBroker) -> None:
    slow, quick = producer(broker, "slow"), producer(broker, "quick")
    slow.begin_transaction()
    slow.produce("open", b"slow", partition=0)
    slow.flush(WAIT)
    quick.begin_transaction()
    quick.produce("open", b"quick", partition=0)
    quick.commit_transaction(WAIT)
    assert consume_to_the_end(broker, "open", partitions=1) == []
    slow.commit_transaction(WAIT)
    assert consume_to_the_end(broker, "open", partitions=1) == [(0, b"slow"), (0, b"quick")]


def test_second_producer_with_the_same_transactional_id_fences_the_first(broker: RunningBroker) -> None:
    zombie = producer(broker, "fenced")
    zombie.begin_transaction()
    zombie.produce("fencing", b"zombie", partition=0)
    zombie.flush(WAIT)
    fresh = producer(broker, "fenced")
    fresh.begin_transaction()
    fresh.produce("fencing", b"fresh", partition=0)
    fresh.commit_transaction(WAIT)
    zombie.produce("fencing", b"too late", partition=0)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(WAIT)
    assert caught.value.args[0].fatal()
    assert consume_to_the_end(broker, "fencing", partitions=1) == [(0, b"fresh")]


def test_transaction_beyond_its_timeout_is_aborted(broker: RunningBroker) -> None:
    late = producer(broker, "late", **{"transaction.timeout.ms": 1000})
    late.begin_transaction()
    late.produce("timeouts", b"late", partition=0)
    late.flush(WAIT)
    other = producer(broker, "not late")
    other.begin_transaction()
    other.produce("timeouts", b"in time", partition=0)
    other.commit_transaction(WAIT)
    end = time.monotonic() + WAIT
    while consume_to_the_end(broker, "timeouts", partitions=1) != [(0, b"in time")]:
        assert time.monotonic() < end
    with pytest.raises(KafkaException):
        late.commit_transaction(WAIT)


def test_timeout_above_transaction_max_timeout_ms_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT"):
        producer(broker, "patient", **{"transaction.timeout.ms": 900_001})


def test_consume_transform_produce_copies_records_exactly_once(broker: RunningBroker) -> None:
    feeder = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        feeder.produce("inputs", b"%d" % number, partition=number % 2)
    assert feeder.flush(WAIT) == 0
    copied = 0
    for attempt in range(4):  # each stands for a process that is gone in the middle of its work
        reader = consumer(broker, "copiers", "read_committed", **{"enable.partition.eof": False})
        reader.subscribe(["inputs"])
        writer = producer(broker, "copier")
        end = time.monotonic() + WAIT
        batches = 0
        while copied < 300 and time.monotonic() < end:
            messages = reader.consume(25, 1)
            if not messages:
                continue
            writer.begin_transaction()
            for message in messages:
                writer.produce("outputs", message.value(), partition=message.partition())
            writer.send_offsets_to_transaction(
                reader.position(reader.assignment()), reader.consumer_group_metadata(), WAIT
            )
            batches += 1
            if attempt < 3 and batches == 3:
                writer.flush(WAIT)
                break  # neither committed nor aborted
            writer.commit_transaction(WAIT)
            copied += len(messages)
        reader.close()
    found = consume_to_the_end(broker, "outputs")
    assert sorted(int(value) for _, value in found) == list(range(300))
    committed = consumer(broker, "copiers").committed([TopicPartition("inputs", n) for n in (0, 1)], WAIT)
    assert [partition.offset for partition in committed] == [150, 150]


def test_offsets_of_an_aborted_transaction_are_not_committed(broker: RunningBroker) -> None:
    broker.create_topic("source", 1)
    reader = consumer(broker, "aborters")
    reader.assign([TopicPartition("source", 0, 0)])
    one = producer(broker, "aborter")
    for offset, commits in ((5, True), (9, False)):
        one.begin_transaction()
        one.send_offsets_to_transaction([TopicPartition("source", 0, offset)], reader.consumer_group_metadata(), WAIT)
        (one.commit_transaction if commits else one.abort_transaction)(WAIT)
    assert [found.offset for found in reader.committed([TopicPartition("source", 0)], WAIT)] == [5]
    reader.close()


def test_transactions_continue_after_kill_9(tmp_path) -> None:  # type: ignore[no-untyped-def]
    broker = RunningBroker(tmp_path / "data", {"num.partitions": 2})
    broker.start()
    one = producer(broker, "survivor")
    one.begin_transaction()
    one.produce("survives", b"before", partition=0)
    one.flush(WAIT)
    broker.kill()
    broker.start()
    one.produce("survives", b"after", partition=0)
    one.commit_transaction(WAIT)
    other = producer(broker, "gone")
    other.begin_transaction()
    other.produce("survives", b"gone", partition=1)
    other.flush(WAIT)
    broker.kill()
    broker.start()
    producer(broker, "gone")
    assert consume_to_the_end(broker, "survives") == [(0, b"before"), (0, b"after")]
    broker.stop()
