"""The examples do what they say, each in a process of its own; tests/spark/test_examples.py has more with Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name: str, *arguments: object) -> str:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "SPARK_LOCAL_IP": "127.0.0.1"},
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
