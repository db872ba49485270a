"""The examples do what they say, each in a process of its own; tests/spark/test_examples.py has more with Spark."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.fs import copy_files

from kafkalog_broker.testing import RunningBroker
from tests.store.s3_server import S3Server

pytestmark = pytest.mark.end_to_end

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name: str, *arguments: object, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.kafkalog(topics={"orders": 3})
def test_a_producer_and_a_consumer_group(kafkalog_broker: RunningBroker) -> None:
    assert "500 records acknowledged" in run("producer.py", kafkalog_broker.bootstrap, "orders", 500)
    told = run("consumer_group.py", kafkalog_broker.bootstrap, "orders", "readers")
    assert "500 records in all" in told
    assert len(re.findall(r"partition \d: \d+ records", told)) == 3


def test_a_producer_without_a_broker_ends_with_one_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"  # bound, and nobody listens
        command = [sys.executable, str(EXAMPLES / "producer.py"), address]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"no broker at {address}; start one: kafkalog-broker --log-dir ./data\n"


@pytest.mark.spark
@pytest.mark.kafkalog(topics={"orders": 3})
def test_spark_reads_what_the_broker_writes(kafkalog_broker: RunningBroker) -> None:
    run("producer.py", kafkalog_broker.bootstrap, "orders", 500)
    assert "500 records" in run("batch_read.py", kafkalog_broker.log_dir, "orders")


@pytest.mark.kafkalog(topics={"orders": 3, "shouted-orders": 3})
def test_a_topic_is_copied_exactly_once(kafkalog_broker: RunningBroker) -> None:
    run("producer.py", kafkalog_broker.bootstrap, "orders", 500)
    assert "500 records copied" in run("exactly_once_loop.py", kafkalog_broker.bootstrap, "orders", "shouted-orders")
    assert "0 records copied" in run("exactly_once_loop.py", kafkalog_broker.bootstrap, "orders", "shouted-orders")
    assert "500 records in all" in run("consumer_group.py", kafkalog_broker.bootstrap, "shouted-orders", "readers")


@pytest.mark.spark
@pytest.mark.kafkalog(topics={"orders": 3})
def test_executors_that_share_a_bucket_alone_read_it(kafkalog_broker: RunningBroker, tmp_path: Path) -> None:
    run("producer.py", kafkalog_broker.bootstrap, "orders", 500)
    (tmp_path / "buckets").mkdir()
    with S3Server(tmp_path / "buckets") as server:
        server.make_bucket("backup")
        copy_files(str(kafkalog_broker.log_dir), "backup/kafka-logs", destination_filesystem=server.file_system())
        told = run(
            "read_bucket.py", "s3a://backup/kafka-logs", "orders", "local-cluster[2,1,1024]",
            AWS_ACCESS_KEY_ID=server.access_key, AWS_SECRET_ACCESS_KEY=server.secret_key, AWS_REGION=server.region,
            AWS_ENDPOINT_URL=server.endpoint, SPARK_WORKER_DIR=str(tmp_path / "work"),
        )  # fmt: skip
    assert "500 records up to " in told
    assert len(re.findall(r"\| +[012]\| +\d+\| +\d+\|", told)) == 3


@pytest.mark.spark
@pytest.mark.parametrize("bucket", [False, True])
def test_a_topic_keeps_a_minute_on_disk_and_a_day_remotely(bucket: bool, tmp_path: Path) -> None:
    (tmp_path / "buckets").mkdir()
    with S3Server(tmp_path / "buckets") as server:
        server.make_bucket("tier")
        told = run(
            "tiered_topic.py", tmp_path / "topic", *(["s3://tier"] if bucket else []),
            AWS_ACCESS_KEY_ID=server.access_key, AWS_SECRET_ACCESS_KEY=server.secret_key, AWS_REGION=server.region,
            AWS_ENDPOINT_URL=server.endpoint,
        )  # fmt: skip
    assert "40000 records of a day" in told
    size = re.search(r"([0-9.]+) MB of records on disk, the others in (.*)", told)
    assert size is not None
    assert float(size[1]) < 2
    assert size[2] == ("tier" if bucket else str(tmp_path / "topic" / "remote"))
