"""Spark reads partitions that the broker compacts meanwhile: the latest value of each key is always there."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from broker.testing import RunningBroker

TOPIC, READS, KEYS = "compacted", 4, 50
SETTINGS = {
    "partitions": 1,
    "cleanup.policy": "compact",
    "internal.segment.bytes": 20_000,
    "min.cleanable.dirty.ratio": 0.01,
}


class Writer(threading.Thread):
    """Counts each key up until it is told to stop. `acknowledged`: the last number of each key that is in the log."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.acknowledged: dict[int, int] = {}
        self.errors: list[object] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            for key in range(KEYS):
                self._producer.produce(TOPIC, b"%d" % number, b"%d" % key, on_delivery=self._delivered)
            self._producer.flush(30)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[int(message.key())] = int(message.value())  # type: ignore[attr-defined]
        else:
            self.errors.append(error)


@pytest.mark.kafkalog(topics={TOPIC: SETTINGS}, properties={"log.cleaner.backoff.ms": 5})
def test_the_latest_value_of_each_key_is_read_while_segments_are_swapped(
    spark: SparkSession, kafkalog_broker: RunningBroker
) -> None:
    writer = Writer(kafkalog_broker)
    writer.start()
    frame = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(kafkalog_broker.log_dir))
    numbers = frame.selectExpr("offset", "cast(cast(key as string) as int) k", "cast(cast(value as string) as int) n")
    ends = []
    for _ in range(READS):
        acknowledged = dict(writer.acknowledged)
        rows = numbers.collect()
        offsets = [row.offset for row in rows]
        assert offsets == sorted(set(offsets))
        latest = {row.k: row.n for row in rows}
        for key, number in acknowledged.items():
            assert latest[key] >= number
        ends.append((len(rows), max(offsets, default=0)))
    writer.stop.set()
    writer.join(60)
    assert writer.errors == []
    checkpoint = (kafkalog_broker.log_dir / "cleaner-offset-checkpoint").read_text()
    assert int(checkpoint.split()[-1]) > 0, "nothing was compacted, and nothing was shown"
    assert ends[-1][0] < ends[-1][1], "as many rows as offsets: the reads saw nothing of the compaction"
