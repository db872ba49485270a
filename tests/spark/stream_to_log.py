"""A streaming query in a process of its own, to be killed: python -m tests.spark.stream_to_log SOURCE LOG CHECKPOINT.

Reads a directory of text files that grows, writes to topic `t`. Ends when there is a file `.stop` and nothing new.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.killed_with_parent import kill_with_parent
from tests.spark_session import new_session


def main(source: str, log_dir: str, checkpoint: str) -> None:
    several_tasks = {"spark.sql.files.openCostInBytes": "1", "spark.sql.files.maxPartitionBytes": "2k"}  # a micro-batch
    spark = new_session("local[2]", several_tasks)
    query = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(source)
        .writeStream.format("kafkalog").option("topic", "t").option("numPartitions", 3)
        .option("segment.bytes", "16k").option("batch.size", "1k").option("compression.type", "lz4")
        .option("checkpointLocation", checkpoint).start(log_dir)
    )  # fmt: skip
    while not (Path(source).parent / "stop").exists():
        query.awaitTermination(0.2)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    kill_with_parent()
    main(*sys.argv[1:])
