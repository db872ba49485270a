"""Count the records of a topic in windows of ten seconds with a stream, and print each window when it is complete.

    python examples/windowed_count.py LOG_DIRECTORY TOPIC [--once]

A window is complete when a record arrives whose timestamp is five seconds after the end of the window (the watermark).
With --once, the query stops after the existing records.
"""

from __future__ import annotations

import os
import sys


def main(directory: str, topic: str, once: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # default: python3 on PATH, which may not have kafkalog
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    counts = (
        spark.readStream.format("kafkalog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "partition,timestamp")  # values are not decoded
        .load(directory)
        .withWatermark("timestamp", "5 seconds")
        .groupBy(f.window("timestamp", "10 seconds"))
        .count()
        .select("window.start", "count")
    )

    def show(batch, _number) -> None:  # type: ignore[no-untyped-def]
        for row in sorted(batch.collect()):
            print(f"{row.start:%H:%M:%S}  {row['count']} records", flush=True)

    writer = counts.writeStream.foreachBatch(show).outputMode("append")
    query = (writer.trigger(availableNow=True) if once else writer).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--once"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    main(arguments[0], arguments[1], "--once" in sys.argv)
