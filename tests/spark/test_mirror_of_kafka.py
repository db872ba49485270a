"""Spark over a mirror, in batch and stream, while a real Kafka is written to and copied: the rows that Kafka serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.mirror.helpers.mirrors import MirrorProcess, same_logs
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_mirror import CODECS, send, transactions, until
from tests.spark.helpers.streams import start_query

pytestmark = [pytest.mark.interop, pytest.mark.skipif(available() is not None, reason=str(available()))]

TOPICS = ("orders", "moves")


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    columns = frame.selectExpr("topic", "partition", "offset", "key", "value", "unix_millis(timestamp) as timestamp")
    return sorted(
        (row.topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value), row.timestamp)
        for row in columns.collect()
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def kafkas(kafka: RealKafka) -> list[tuple[Any, ...]]:
    return sorted(
        (topic, row["partition"], row["offset"], row["key"], row["value"], row["timestamp"])
        for topic in TOPICS
        for row in kafka.consume(topic, isolation_level="read_committed")
    )


def test_batch_and_stream_over_a_live_mirror_equal_kafka(spark, tmp_path: Path) -> None:
    mirror, seen = tmp_path / "mirror", []

    def keep(frame: Any, _: int) -> None:
        seen.extend(rows_of(frame))

    with RealKafka(tmp_path / "kafka", short_lived=True) as kafka:
        for topic in TOPICS:
            kafka.create_topic(topic, 1, {"internal.segment.bytes": 40_000})
        options = {
            "subscribe": ",".join(TOPICS), "startingOffsets": "earliest", "isolationLevel": "read_committed"
        }  # fmt: skip
        with MirrorProcess(kafka.bootstrap, mirror, "-X", "fetch.wait.max.ms=50", topics="|".join(TOPICS)) as running:
            for number, codec in enumerate(CODECS):
                send(kafka.bootstrap, "orders", 300, first=1000 * number, config={"compression.type": codec})
                if number == 2:
                    transactions(kafka.bootstrap, "moves")
                until(lambda: all(same(mirror, kafka, topic) for topic in TOPICS))
                query = start_query(
                    spark.readStream.format("kafkalog").options(**options).load(str(mirror))
                    .writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                )  # fmt: skip
                assert query.awaitTermination(600)
            read = spark.read.format("kafkalog").options(**options).load(str(mirror))
            assert rows_of(read) == kafkas(kafka)
            assert running.stop() == 0
        assert len(kafkas(kafka)) > 1500
        assert sorted(seen) == kafkas(kafka)


def same(mirror: Path, kafka: RealKafka, topic: str) -> bool:
    return same_logs(mirror, kafka.data_dir, topic)
