"""kill -9: what was acknowledged is there exactly once, in order, and committed offsets never go back."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from broker.testing import RunningBroker
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.partition_scan import ScanRequest, scan_partition

TOPIC, PARTITIONS = "crash", 2


class Writer(threading.Thread):
    """An idempotent producer that sends numbers until it is told to stop, and knows which were acknowledged."""

    def __init__(self, broker: RunningBroker, number: int) -> None:
        super().__init__(daemon=True)
        self.number, self.stop = number, threading.Event()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def run(self) -> None:
        n = 0
        while not self.stop.is_set():
            value = b"%d %d" % (self.number, n)
            self._producer.produce(TOPIC, value, partition=self.number % PARTITIONS, on_delivery=self._delivered)
            n += 1
            self._producer.poll(0)
            if len(self._producer) > 500:
                self._producer.poll(0.01)
        left = self._producer.flush(120)
        if left:
            self.failed.append(f"{left} records were never answered")

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(int((message.value() or b"").split()[1]))


def crash_rounds(directory: Path, rounds: int, seed: int) -> None:
    """Writers go on over `rounds` kills at random moments; then every log is compared with what was acknowledged."""
    moments = random.Random(seed)
    broker = RunningBroker(directory / "data", {"log.segment.bytes": 1 << 20, "num.partitions": PARTITIONS})
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS)
    writers = [Writer(broker, number) for number in range(4)]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "crash", "enable.auto.commit": False})
    committed = 0
    for writer in writers:
        writer.start()
    for _ in range(rounds):
        time.sleep(moments.uniform(0.1, 1.0))  # the load is what a kill has to meet, at any moment
        target = committed + 1
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, target)], asynchronous=False)
        committed = target
        broker.kill()
        broker.start()
        found = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset
        assert found == committed, f"offset {committed} was committed, after a crash it is {found}"
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.join(150)
    consumer.close()
    broker.stop()
    assert [writer.failed for writer in writers] == [[]] * len(writers)
    check_logs(broker.log_dir, writers)


def check_logs(log_dir: Path, writers: list[Writer]) -> None:
    dirs = LogDirs.open(log_dir)
    seen: dict[int, list[int]] = {writer.number: [] for writer in writers}
    for partition in range(PARTITIONS):
        offsets: list[int] = []
        log = dirs.partition(TOPIC, partition)
        for found in scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("offset", "value"))):
            offsets += found.column("offset").to_pylist()
            for value in found.column("value").to_pylist():
                sender, n = map(int, value.split())
                seen[sender].append(n)
        assert offsets == list(range(len(offsets)))
    for writer in writers:
        assert writer.acknowledged, "nothing was acknowledged: the test has shown nothing"
        assert seen[writer.number] == sorted(set(seen[writer.number])), "a record is there twice, or out of order"
        assert set(writer.acknowledged) <= set(seen[writer.number]), "an acknowledged record is lost"


def test_a_few_crashes_under_load(tmp_path: Path) -> None:
    crash_rounds(tmp_path, rounds=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_crashes_under_load(tmp_path: Path) -> None:
    crash_rounds(tmp_path, rounds=30, seed=2)
