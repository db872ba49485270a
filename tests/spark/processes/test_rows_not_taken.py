"""Workers whose rows Spark stops taking end without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source.helpers.made_logs import append, numbers

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[3]
PARTITIONS = 120


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


@pytest.mark.spark
@pytest.mark.timeout(700)
def test_a_worker_that_spark_stops_reading_from_prints_no_traceback(tmp_path: Path) -> None:
    """With Spark's own daemon, and with ours."""
    for partition in range(PARTITIONS):
        append(tmp_path, "many", partition, numbers(10 * partition, 10 * partition + 10))
    append(tmp_path, "large", 0, ["x" * 1000] * 20_000, batch=1000)  # more than a connection buffers
    done = subprocess.run(
        [sys.executable, "-c", TAKES.format(path=str(tmp_path))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "Error" not in done.stderr, done.stderr[-3000:]
