"""Copy a topic to Parquet files with a stream, each record exactly once.

    python examples/stream_to_parquet.py LOG_DIRECTORY TOPIC OUT [--once]

The checkpoint is in OUT/_checkpoint: a restarted query resumes at its position. With --once, the query stops after the
records that exist when it starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(directory: str, topic: str, out: str, once: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # default: python3 on PATH, which may not have kafkalog
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from kafkalog_spark.source.lag import LagListener

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.streams.addListener(LagListener())  # prints the lag of the query
    records = (
        spark.readStream.format("kafkalog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load(directory)
        .selectExpr("partition", "offset", "timestamp", "cast(value as string) as value")
    )
    writer = (
        records.writeStream.format("parquet")
        .option("checkpointLocation", str(Path(out) / "_checkpoint"))
        .queryName(topic)
    )
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="5 seconds")).start(out)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    print(f"{spark.read.parquet(out).count()} records in {out}")
    spark.stop()


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--once"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    main(arguments[0], arguments[1], arguments[2], "--once" in sys.argv)
