"""A session whose time zone was never set has that of the driver's JVM, and tasks read in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source.helpers.made_logs import append

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[3]
READS = """
import sys
from pyspark.sql import functions
from tests.spark_session import new_session
spark = new_session("local[1]")
raw = spark.read.format("kafkalog").option("subscribe", "orders").load(sys.argv[1])
theirs = raw.select(functions.from_json(raw.value.cast("string"), "t timestamp").t.cast("long"))
ours = spark.read.format("kafkalog").option("subscribe", "orders").option("value.format", "json")
ours = ours.schema("t timestamp").load(sys.argv[1]).select(functions.col("t").cast("long"))
print(spark.conf.get("spark.sql.session.timeZone"), ours.collect() == theirs.collect(), ours.first()[0])
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_unset_session_time_zone_is_that_of_the_drivers_jvm(tmp_path: Path) -> None:
    append(tmp_path, "orders", 0, ['{"t":"1970-01-01 00:00:00"}', '{"t":"2024-03-10 02:30:00"}'])
    environment = {**os.environ, "TZ": "Asia/Tokyo", "JAVA_TOOL_OPTIONS": "-Duser.timezone=America/New_York"}
    run = [sys.executable, "-c", READS, str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["America/New_York", "True", str(5 * 3600)], done.stderr[-3000:]
