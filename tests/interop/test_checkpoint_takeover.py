"""The checkpoint of a query that reads format("kafka") is taken over by format("kafkalog"), and given back: the
procedure of docs/streaming.md, with Spark's own connector on a real Kafka.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.spark_session import SparkSession
from tests.interop.connector import Connector, connector_available
from tests.interop.real_kafka import RealKafka

pytestmark = pytest.mark.skipif(connector_available() is not None, reason=str(connector_available()))

TOPIC, PARTITIONS = "orders", 12  # "10" and "11" come before "2" as text


def produce(kafka: RealKafka, start: int, end: int, partitions: int = PARTITIONS) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(start, end):
        producer.produce(TOPIC, value=b"%d" % n, partition=n % partitions)
    assert producer.flush(120) == 0


def values(out: Path) -> list[int]:
    """Return the values committed by the file sink. No query was killed, so every file is in its _spark_metadata."""
    found: list[int] = []
    for path in out.glob("*.parquet"):
        found += [int(value) for value in pq.read_table(path)["value"].to_pylist()]
    return sorted(found)


def offsets(checkpoint: Path) -> list[object]:
    """Of every batch, by number."""
    files = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def test_query_of_the_connector_continues_with_kafkalog_and_back(tmp_path: Path) -> None:
    connector = Connector.install()
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    with RealKafka(tmp_path / "kafka", short_lived=True) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 5_000})
        theirs = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 150,
        }
        request = {"action": "stream", "to": str(out), "checkpoint": str(checkpoint)}
        produce(kafka, 0, 400)
        with SparkSession(connector.conf, connector.python) as spark:
            spark.run("kafka", theirs, **request)
        before = offsets(checkpoint)
        assert values(out) == list(range(400))

        produce(kafka, 400, 700)
        # the format's name changes, and the path is new; everything else is as it was, options that do nothing included
        with SparkSession() as spark:
            spark.run("kafkalog", theirs, path=str(kafka.data_dir), **request)
            assert values(out) == list(range(700))
            after = offsets(checkpoint)
            assert after[: len(before)] == before
            # a query with nothing new changes nothing: from now on the offsets are written in one way
            spark.run("kafkalog", theirs, path=str(kafka.data_dir), **request)
            assert offsets(checkpoint) == after

        produce(kafka, 700, 1000)
        with SparkSession(connector.conf, connector.python) as spark:
            spark.run("kafka", theirs, **request)
    assert values(out) == list(range(1000))


def test_unfinished_batch_of_the_connector_is_read_by_kafkalog(tmp_path: Path) -> None:
    connector = Connector.install()
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    with RealKafka(tmp_path / "kafka", short_lived=True) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        theirs = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        request = {"action": "stream", "checkpoint": str(checkpoint)}
        produce(kafka, 0, 100)
        with SparkSession(connector.conf, connector.python) as spark:
            spark.run("kafka", {**theirs, "maxOffsetsPerTrigger": 60}, to=str(tmp_path / "theirs"), **request)
        # as a kill between the log of the last batch's offsets and its commit leaves it
        last = len(offsets(checkpoint)) - 1
        assert last > 0
        for name in (str(last), f".{last}.crc"):
            (checkpoint / "commits" / name).unlink()
        start, end = offsets(checkpoint)[-2:]
        produce(kafka, 100, 150)
        with SparkSession() as spark:
            spark.run("kafkalog", theirs, path=str(kafka.data_dir), to=str(out), **request)
    assert isinstance(start, dict)
    assert isinstance(end, dict)
    again = sum(end[TOPIC][p] - start[TOPIC][p] for p in end[TOPIC])
    assert len(values(out)) == again + 50
    assert set(range(100, 150)) <= set(values(out))
