"""Spark reads partitions that the broker is writing: no error, never a row twice, counts only grow."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kafkalog_broker.testing import RunningBroker

pytestmark = pytest.mark.end_to_end

TOPIC, PARTITIONS, READS = "live", 2, 5
ROUND = 8_000  # records that are written while one read is under way


class Writer(threading.Thread):
    """Sends numbers, ROUND of them for each `go`, flushing every few so that many small batches and segments arise."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self.go = threading.Semaphore(0)
        self.acknowledged = 0
        self.errors: list[object] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def run(self) -> None:
        for number in range(READS * ROUND):
            if number % ROUND == 0:
                self.go.acquire()
            self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            if number % 50 == 0:
                self._producer.flush(120)
        self._producer.flush(120)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(error)


@pytest.mark.kafkalog(topics={TOPIC: {"partitions": PARTITIONS, "internal.segment.bytes": 50_000}})
def test_counts_of_live_partitions_only_grow_without_duplicates(
    spark: SparkSession, kafkalog_broker: RunningBroker
) -> None:
    writer = Writer(kafkalog_broker)
    writer.start()
    frame = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(kafkalog_broker.log_dir))
    counts = []
    for _ in range(READS):
        acknowledged = writer.acknowledged
        writer.go.release()
        rows = frame.selectExpr("partition", "offset", "cast(cast(value as string) as long) as number").collect()
        assert len({(row.partition, row.offset) for row in rows}) == len(rows)
        assert len({row.number for row in rows}) == len(rows)
        assert len(rows) >= acknowledged, "an acknowledged record was not read"
        counts.append(len(rows))
    writer.join(150)
    assert not writer.is_alive()
    assert writer.errors == []
    assert counts == sorted(counts)
    assert frame.count() == writer.acknowledged == READS * ROUND
