"""A streaming query in a process of its own, to be killed.

    python -m tests.spark.helpers.stream_to_log SOURCE LOG CHECKPOINT

Reads a directory of text files that grows, writes to topic `t`, until it is killed.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.spark.helpers.killed_with_parent import kill_with_parent
from tests.spark_session import new_session

SEVERAL_TASKS = {"spark.sql.files.openCostInBytes": "1", "spark.sql.files.maxPartitionBytes": "2k"}
"""Settings with which a micro-batch has several."""


def started(spark: Any, source: str, log_dir: str, checkpoint: str) -> Any:
    """The query, running."""
    return (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(source)
        .writeStream.format("kafkalog").option("topic", "t").option("numPartitions", 3)
        .option("segment.bytes", "16k").option("batch.size", "1k").option("compression.type", "lz4")
        .option("checkpointLocation", checkpoint).start(log_dir)
    )  # fmt: skip


def main(source: str, log_dir: str, checkpoint: str) -> None:
    spark = new_session("local[2]", SEVERAL_TASKS)
    started(spark, source, log_dir, checkpoint).awaitTermination()


if __name__ == "__main__":
    kill_with_parent()
    main(*sys.argv[1:])
