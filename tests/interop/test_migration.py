"""docs/migration.md: a job with Spark's own connector, and its continuation with kafkalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.interop.connector import Connector, connector_available
from tests.interop.real_kafka import RealKafka
from tests.pages import ROOT, listings
from tests.spark_session import JVM_FOR_TESTS

pytestmark = pytest.mark.skipif(connector_available() is not None, reason=str(connector_available()))


def produce(kafka: RealKafka, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(start, end):
        value = json.dumps({"amount": number})
        producer.produce("orders", key=b"c%d" % (number % 3), value=value, partition=number % 2)
    assert producer.flush(120) == 0


def run(python: Path, program: str, *arguments: object, **environment: str) -> None:
    given = {**os.environ, **JVM_FOR_TESTS, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    command = [str(python), "-c", program, *map(str, arguments)]
    ran = subprocess.run(command, env=given, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def written(out: Path) -> list[tuple[int, int, str, int]]:
    rows = [row for path in out.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted((row["partition"], row["offset"], row["customer"], row["amount"]) for row in rows)


def test_job_continues_with_kafkalog_where_the_connector_stopped(tmp_path: Path) -> None:
    connector = Connector.install()
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    jars = " ".join(f"--conf {name}={value}" for name, value in connector.conf.items())
    with RealKafka(tmp_path / "kafka", short_lived=True) as kafka:
        kafka.create_topic("orders", 2)
        produce(kafka, 0, 400)
        before, after = (listing.code for listing in listings("docs/migration.md", "python"))
        run(connector.python, before, kafka.bootstrap, out, checkpoint, PYSPARK_SUBMIT_ARGS=f"{jars} pyspark-shell")
        expected = [(n % 2, n // 2, f"c{n % 3}", n) for n in range(700)]
        assert written(out) == sorted(expected[:400])
        produce(kafka, 400, 700)
        paths = os.pathsep.join([str(ROOT), str(ROOT / "broker")])
        run(Path(sys.executable), after, kafka.data_dir, out, checkpoint, PYTHONPATH=paths)
        assert written(out) == sorted(expected)
