"""Writes on local-cluster[2,1,1024] while tasks fail, are slow and get speculative copies.

python -m tests.spark.sink_local_cluster LOG_DIRECTORY writes 8 x 1000 records. Run by test_sink_local_cluster.py,
because a process has one Spark session at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

ROWS, TASKS = 1000, 8
SLOW_SECONDS = 8  # of the first attempt of some tasks: long enough for a copy to overtake it


def troubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they are, but task 1's first attempts fail behind some rows, tasks 2 and 5 are slow at first."""
    import time

    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    for batch in batches:
        for at in range(0, batch.num_rows, 100):
            yield batch.slice(at, 100)
            if task == 1 and attempt < 2 and at >= 500:
                raise RuntimeError("this attempt is meant to fail")
            if task in (2, 5) and attempt == 0 and at == 300:
                time.sleep(SLOW_SECONDS)


def main(log_dir: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_WORKER_DIR"] = str(Path(log_dir).with_name("work"))  # not into the current directory
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("kafkalog local-cluster sink test")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.1")
        .config("spark.speculation.minTaskRuntime", "200ms")
        .getOrCreate()
    )
    try:
        spark.sparkContext.setLogLevel("OFF")
        rows = spark.range(0, ROWS * TASKS, 1, TASKS).selectExpr("cast(id as string) value")
        (
            rows.mapInArrow(troubled, "value string").write.format("kafkalog").mode("append").option("topic", "t")
            .option("numPartitions", 3).option("segment.bytes", "8k").option("batch.size", "1k").save(log_dir)
        )  # fmt: skip
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        attempts = sum(
            tracker.getStageInfo(stage).get().numTasks() + tracker.getStageInfo(stage).get().numFailedTasks()
            for stage in range(1)
        )
        print(f"attempts {attempts}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
