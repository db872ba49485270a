"""Topics of many small partitions through Spark: few tasks, and workers whose rows are not all taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source.made_logs import append, numbers
from tests.spark.loads import load

ROOT = Path(__file__).parents[2]
PARTITIONS = 120


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """many-0 to many-119 with ten records each, large-0 with more than a connection buffers."""
    path = tmp_path_factory.mktemp("logs")
    for partition in range(PARTITIONS):
        append(path, "many", partition, numbers(10 * partition, 10 * partition + 10))
    append(path, "large", 0, ["x" * 1000] * 20_000, batch=1000)
    return path


def test_small_partitions_are_read_by_few_tasks(spark: Any, log_dir: Path) -> None:
    df = load(spark, log_dir, subscribe="many")
    assert df.rdd.getNumPartitions() < PARTITIONS / 2
    assert df.count() == 10 * PARTITIONS
    found = df.selectExpr("count(distinct partition, offset) n", "sum(cast(cast(value as string) as int)) s").first()
    assert (found.n, found.s) == (10 * PARTITIONS, sum(range(10 * PARTITIONS)))
    assert df.limit(1).count() == 1
    assert load(spark, log_dir, subscribe="many", minPartitions=PARTITIONS).rdd.getNumPartitions() == PARTITIONS


TAKES = """
import sys
from tests.spark_session import new_session
for daemon in ("pyspark.daemon", "kafkalog_spark.daemon"):  # one JVM, and a session for each
    spark = new_session("local[2]", {{"spark.python.daemon.module": daemon}}, "WARN")
    df = spark.read.format("kafkalog").load({path!r} + "/large-0")
    many = spark.read.format("kafkalog").option("subscribe", "many").load({path!r})
    for _ in range(2):
        assert len(df.take(1)) == 1
        assert len(many.take(1)) == 1
    assert many.limit(1).count() == 1
    many.show(3)
    assert many.count() == 1200
    spark.stop()
"""


def test_a_worker_that_spark_stops_reading_from_prints_no_traceback(log_dir: Path) -> None:
    """With Spark's own daemon, and with ours."""
    done = subprocess.run(
        [sys.executable, "-c", TAKES.format(path=str(log_dir))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "Error" not in done.stderr, done.stderr[-3000:]
