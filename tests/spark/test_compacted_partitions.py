"""Spark reads partitions that the broker compacts meanwhile: what nothing has superseded is always there.

A read ends where the log ended when it began. Of a key that is written again meanwhile, compaction may take the older
record from under it, and the newer one lies behind its end: it sees neither, as any consumer that stops at an offset.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from kafkalog_broker.testing import RunningBroker
from tests.spark.helpers.streams import start_query

TOPIC, READS, KEYS = "compacted", 3, 50
DEADLINE_S = 90  # for the first round of the cleaner, whose kernels may have to be compiled
SETTINGS = {
    "partitions": 1,
    "cleanup.policy": "compact",
    "internal.segment.bytes": 20_000,
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 500,
}


class Writer(threading.Thread):
    """Counts each key up until it is told to stop, and writes in each round one key that it never writes again.

    `once`: those that are acknowledged. `latest`: the last number of each other key.
    """

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.once: set[int] = set()
        self.latest: dict[int, int] = {}
        self.errors: list[object] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            for key in (*range(KEYS), KEYS + number):
                self._producer.produce(TOPIC, b"%d" % number, b"%d" % key, on_delivery=self._delivered)
            self._producer.flush(120)
            self.stop.wait(0.005)  # segments enough, and not so many that reading them takes long

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(error)
            return
        key = int(message.key())  # type: ignore[attr-defined]
        if key >= KEYS:
            self.once.add(key)
        else:
            self.latest[key] = int(message.value())  # type: ignore[attr-defined]


@pytest.mark.kafkalog(topics={TOPIC: SETTINGS}, properties={"log.cleaner.backoff.ms": 5})
def test_batch_read_during_compaction_has_every_latest_record(
    spark: SparkSession, kafkalog_broker: RunningBroker
) -> None:
    writer = Writer(kafkalog_broker)
    writer.start()
    frame = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(kafkalog_broker.log_dir))
    numbers = frame.selectExpr("offset", "cast(cast(key as string) as int) k", "cast(cast(value as string) as int) n")
    ends: list[tuple[int, int]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(ends) < READS or (ends[-1][0] >= ends[-1][1] and time.monotonic() < deadline):
        once = set(writer.once)
        rows = numbers.collect()
        offsets = [row.offset for row in rows]
        assert offsets == sorted(set(offsets))
        assert not once - {row.k for row in rows}, "a record that nothing has superseded was not read"
        assert all(row.n == row.k - KEYS for row in rows if row.k >= KEYS)
        ends.append((len(rows), max(offsets, default=0)))
    writer.stop.set()
    writer.join(150)
    assert writer.errors == []
    found = {row.k: row.n for row in sorted(numbers.collect())}
    assert {key: number for key, number in found.items() if key < KEYS} == writer.latest
    assert {key for key in found if key >= KEYS} == writer.once
    checkpoint = (kafkalog_broker.log_dir / "cleaner-offset-checkpoint").read_text()
    assert int(checkpoint.split()[-1]) > 0, "nothing was compacted, and nothing was shown"
    assert ends[-1][0] < ends[-1][1], "as many rows as offsets: the reads saw nothing of the compaction"


@pytest.mark.end_to_end
@pytest.mark.kafkalog(topics={TOPIC: SETTINGS}, properties={"log.cleaner.backoff.ms": 5})
def test_stream_during_compaction_has_every_latest_record_once(
    spark: SparkSession, kafkalog_broker: RunningBroker, tmp_path: Path
) -> None:
    rows: list[Row] = []
    writer = Writer(kafkalog_broker)
    writer.start()
    records = (
        spark.readStream.format("kafkalog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5_000)
        .load(str(kafkalog_broker.log_dir))
        .selectExpr("offset", "cast(cast(key as string) as int) k", "cast(cast(value as string) as int) n")
    )
    checkpoint = str(tmp_path / "checkpoint")
    stream = records.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = start_query(stream.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds"))
    try:
        cleaned, deadline = kafkalog_broker.log_dir / "cleaner-offset-checkpoint", time.monotonic() + DEADLINE_S
        while not (rows and cleaned.exists() and int(cleaned.read_text().split()[-1]) > rows[0].offset + 10_000):
            assert query.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        writer.stop.set()
        writer.join(150)
        query.processAllAvailable()
    finally:
        query.stop()
    assert writer.errors == []
    offsets = [row.offset for row in rows]
    assert offsets == sorted(set(offsets))
    last = {row.k: row.n for row in rows}
    assert {key: number for key, number in last.items() if key < KEYS} == writer.latest
    assert {key for key in last if key >= KEYS} == writer.once
