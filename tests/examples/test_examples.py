"""The examples do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.source.made_logs import append, numbers

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


@pytest.mark.spark
@pytest.mark.kafkalog(topics={"orders": 3})
def test_a_stream_to_parquet(kafkalog_broker: RunningBroker, tmp_path: Path) -> None:
    run("producer.py", kafkalog_broker.bootstrap, "orders", 500)
    told = run("stream_to_parquet.py", kafkalog_broker.log_dir, "orders", tmp_path / "out", "--once")
    assert "orders: 0 offsets behind latest in 3 partitions" in told
    assert f"500 records in {tmp_path / 'out'}" in told


@pytest.mark.spark
def test_a_windowed_count_prints_windows_that_are_complete(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + at * 1000 for at in (0, 1, 11, 12, 13, 21, 40)]
    append(tmp_path, "orders", 0, numbers(0, len(times)), timestamps=times)
    told = run("windowed_count.py", tmp_path, "orders", "--once")
    assert [line.split()[1] for line in told.splitlines() if line.endswith(" records")] == ["2", "3", "1"]
