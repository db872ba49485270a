"""Fill a topic from a Parquet table: each row becomes a JSON record with a key, ordered by time.

python examples/parquet_to_kafka.py PARQUET LOG_DIRECTORY TOPIC KEY_COLUMN TIME_COLUMN

Without arguments, it creates a small table and prints some of the resulting records.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark.sql.functions as F
from demo import spark_session  # type: ignore[import-not-found]  # next to this file

PARTITIONS = 4


def backfill(spark, parquet: str, directory: str, topic: str, key: str, time: str) -> int:  # type: ignore[no-untyped-def]
    """Write each row as a record. Return the number of records that the topic has afterwards."""
    table = spark.read.parquet(parquet)
    records = table.select(
        F.col(key).cast("string").alias("key"),
        F.to_json(F.struct("*")).alias("value"),
        F.col(time).alias("timestamp"),
        F.lit(topic).alias("topic"),
    )
    (
        records.repartition(PARTITIONS, "key")  # all records of a key in one task: their order is kept
        .sortWithinPartitions("timestamp")
        .write.format("kafkalog")
        .mode("append")
        .option("numPartitions", PARTITIONS)
        .option("compression.type", "lz4")
        .save(directory)
    )
    return int(spark.read.format("kafkalog").option("subscribe", topic).load(directory).count())


def main(arguments: list[str]) -> None:
    spark = spark_session()
    with tempfile.TemporaryDirectory() as scratch:
        if not arguments:
            table, logs = str(Path(scratch, "orders.parquet")), str(Path(scratch, "kafka-logs"))
            spark.range(10_000).selectExpr(
                "id % 100 customer", "id * 7 % 1000 amount", "timestamp_millis(1700000000000 + id * 1000) at"
            ).write.parquet(table)
            arguments = [table, logs, "orders", "customer", "at"]
        count = backfill(spark, *arguments)
        spark.read.format("kafkalog").option("subscribe", arguments[2]).load(arguments[1]).selectExpr(
            "partition", "offset", "timestamp", "cast(key as string)", "cast(value as string)"
        ).show(5, truncate=False)
        print(f"{count} records in topic {arguments[2]}")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (1, 6):
        raise SystemExit(__doc__)
    main(sys.argv[1:])
