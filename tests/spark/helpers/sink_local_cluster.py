"""Writes on local-cluster[2,1,1024] while tasks fail, are slow and get speculative copies.

python -m tests.spark.helpers.sink_local_cluster LOG_DIRECTORY writes 8 x 1000 records. Run by
test_sink_local_cluster.py, because a process has one Spark session at a time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark import TaskContext

from tests.spark_session import FOR_EXECUTORS, new_session

ROWS, TASKS = 1000, 8
SLOW_SECONDS = 8  # of the first attempt of some tasks: long enough for a copy to overtake it


def troubled(number: int) -> str:
    """The number as text, but task 1's first attempts fail behind some rows, tasks 2 and 5 are slow at first."""
    context = TaskContext.get()
    assert context is not None
    task, attempt, row = context.partitionId(), context.attemptNumber(), number % ROWS
    if task == 1 and attempt < 2 and row == 500:
        raise RuntimeError("this attempt is meant to fail")
    if task in (2, 5) and attempt == 0 and row == 300:
        time.sleep(SLOW_SECONDS)
    return str(number)


def main(log_dir: str) -> None:
    os.environ["SPARK_WORKER_DIR"] = str(Path(log_dir).with_name("work"))  # not into the current directory
    from pyspark.sql.functions import udf

    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "200ms",
    }
    spark = new_session("local-cluster[2,1,1024]", {**speculation, **FOR_EXECUTORS}, log_level="OFF")
    try:
        text = udf(troubled, "string")
        rows = spark.range(0, ROWS * TASKS, 1, TASKS).select(text("id").alias("value"))
        (
            rows.write.format("kafkalog").mode("append").option("topic", "t")
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
