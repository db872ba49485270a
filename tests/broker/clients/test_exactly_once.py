"""Records go from topic to topic in transactions with the offsets of the group, under kill -9: exactly once."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker.testing import RunningBroker
from kafkalog_spark.log.last_stable_offset import last_stable_offset
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.partition_scan import ScanRequest, scan_partition

PARTITIONS = 4
WAIT = 60
QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class Copier(threading.Thread):
    """A member of the group that copies what it is assigned, until all has been copied. On an error it begins anew, as
    a process that is started again: nothing but the committed offsets tells it where it was."""

    def __init__(self, broker: RunningBroker, number: int, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.failed: list[str] = []
        self._servers, self._name, self._done = broker.bootstrap, f"copier-{number}", done

    def run(self) -> None:
        while not self._done.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": self._servers, "group.id": "copiers", "auto.offset.reset": "earliest",
                    "enable.auto.commit": False, "isolation.level": "read_committed",
                    # who comes back takes the place it had: nobody waits for a session to end
                    "group.instance.id": self._name, "session.timeout.ms": 6000, **QUICK,
                }
            )  # fmt: skip
            producer = Producer(
                {
                    "bootstrap.servers": self._servers, "transactional.id": self._name, "linger.ms": 0,
                    "transaction.timeout.ms": 3000, "message.timeout.ms": 3000, **QUICK,
                }
            )  # fmt: skip
            try:
                self._copy(consumer, producer)
            except KafkaException:
                continue  # begin anew
            except Exception as error:  # noqa: BLE001 - reported by the test, whatever it is
                self.failed.append(repr(error))
                return
            finally:
                consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer) -> None:
        producer.init_transactions(WAIT)
        consumer.subscribe(["inputs"])
        while not self._done.is_set():
            messages = [message for message in consumer.consume(20, 0.1) if not message.error()]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce("outputs", message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT
            )
            producer.commit_transaction(WAIT)


def outputs(log_dir: Path) -> list[bytes]:
    dirs = LogDirs.open(log_dir)
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        log = dirs.partition("outputs", partition)
        request = ScanRequest(columns=("value",), read_committed=True)
        for rows in scan_partition(log, log.log_start_offset, last_stable_offset(log), request):
            found += rows.column("value").to_pylist()
    return found


def copied_under_crashes(directory: Path, records: int, rounds: int, seed: int) -> None:
    """`records` more before each of the kills."""
    moments = random.Random(seed)
    broker = RunningBroker(
        directory / "data",
        {
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
            "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
        },
    )  # fmt: skip
    broker.start()
    for topic in ("inputs", "outputs"):
        broker.create_topic(topic, PARTITIONS)
    feeder = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **QUICK})
    fed = 0

    def feed(more: int) -> int:
        for number in range(fed, fed + more):
            feeder.produce("inputs", b"%d" % number, partition=number % PARTITIONS)
        assert feeder.flush(WAIT) == 0
        return fed + more

    done = threading.Event()
    copiers = [Copier(broker, number, done) for number in range(2)]
    for copier in copiers:
        copier.start()
    for _ in range(rounds):
        fed = feed(records)
        time.sleep(moments.uniform(0.5, 1.5))  # the load is what a kill has to meet, at any moment
        broker.kill()
        found = outputs(broker.log_dir)
        assert len(found) == len(set(found)), "a record was copied twice"
        broker.start()
    end = time.monotonic() + 2 * WAIT
    while len(outputs(broker.log_dir)) < fed:
        assert time.monotonic() < end, f"{len(outputs(broker.log_dir))} of {fed} records were copied"
        assert not any(copier.failed for copier in copiers), [copier.failed for copier in copiers]
        time.sleep(0.2)
    done.set()
    for copier in copiers:
        copier.join(WAIT)
    assert sorted(map(int, outputs(broker.log_dir))) == list(range(fed))
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "copiers"})
    committed = reader.committed([TopicPartition("inputs", number) for number in range(PARTITIONS)], WAIT)
    assert [found.offset for found in committed] == [fed // PARTITIONS] * PARTITIONS
    reader.close()
    broker.stop()


# Not in the default set: after a kill a member can stay in a call of librdkafka, and the group waits for it, longer
# than this test may take. Why is not known yet.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_records_are_copied_exactly_once_over_two_crashes(tmp_path: Path) -> None:
    copied_under_crashes(tmp_path, records=4_000, rounds=2, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_records_are_copied_exactly_once_over_thirty_crashes(tmp_path: Path) -> None:
    copied_under_crashes(tmp_path, records=4_000, rounds=30, seed=2)
