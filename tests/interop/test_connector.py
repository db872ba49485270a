"""The harness for Spark's own connector: it reads a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.spark_session import SparkSession
from tests.interop.connector import Connector, connector_available
from tests.interop.real_kafka import RealKafka

pytestmark = pytest.mark.skipif(connector_available() is not None, reason=str(connector_available()))


def test_connector_returns_every_record_of_a_topic(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    connector = Connector.install()
    with RealKafka(tmp_path, short_lived=True) as kafka, SparkSession(connector.conf, connector.python) as spark:
        kafka.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for n in range(100):
            producer.produce("orders", value=b"v%d" % n, partition=n % 2)
        assert producer.flush(120) == 0
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "orders"}
        assert spark.run("kafka", options, action="count", expect=100) > 0
        with pytest.raises(RuntimeError, match="returned 100 rows, expected 99"):
            spark.run("kafka", options, action="count", expect=99)
        with pytest.raises(RuntimeError, match="UnknownTopicOrPartition"):
            spark.run("kafka", {**options, "subscribe": "no-such-topic"}, action="count")
