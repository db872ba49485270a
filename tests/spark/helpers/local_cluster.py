"""Reads a log directory on local-cluster[N,1,1024]: a master, N workers, an executor process each.

python -m tests.spark.helpers.local_cluster LOG_DIRECTORY RESULT N writes the table as an Arrow file, and what a stream
in batches of 5,000 offsets reads as Parquet files into RESULT.stream. Run by test_local_cluster.py, because a process
has one Spark session at a time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from tests.spark.helpers.streams import start_query
from tests.spark_session import FOR_EXECUTORS, new_session

ALL_EXECUTORS = {  # begin with all, however long one of them takes to start
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


def main(log_dir: str, result: str, count: str) -> None:
    os.environ["SPARK_WORKER_DIR"] = str(Path(result).with_name("work"))  # not into the current directory
    spark = new_session(f"local-cluster[{count},1,1024]", {**ALL_EXECUTORS, **FOR_EXECUTORS})
    try:
        df = (
            spark.read.format("kafkalog")
            .option("allTopics", True)
            .option("includeHeaders", True)
            .option("maxPartitionBytes", "64k")
            .load(log_dir)
        )
        table = df.toArrow()
        executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
        assert len(executors) == 1 + int(count), f"the driver and {count} executors, not {len(executors)}"
        query = start_query(
            spark.readStream.format("kafkalog")
            .option("allTopics", True)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 5_000)
            .load(log_dir)
            .select("topic", "partition", "offset", "value")
            .writeStream.format("parquet")
            .option("checkpointLocation", result + ".checkpoint")
            .trigger(availableNow=True),
            result + ".stream",
        )
        query.awaitTermination()
        assert len(query.recentProgress) > 2
    finally:
        spark.stop()
    with pa.OSFile(result, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
