"""Copy a topic to a Delta table with a stream, each record exactly once, decoded with the schema of a registry.

    python examples/topic_to_delta.py LOG_DIRECTORY TOPIC TABLE_DIRECTORY [--once] [--registry URL]

Requires pyspark 4.2, for which Delta 4.4.0 is built. A restarted query resumes at the position in
TABLE_DIRECTORY/_checkpoint, and Delta ignores a batch that it has already written (txnAppId, txnVersion). Each batch is
decoded with the latest schema at the time when its end offsets are known, so no record in it has a newer schema, and
added columns appear in the table without a restart. With --once, the query stops after the existing records.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKAGES = "io.delta:delta-spark_4.2_2.13:4.4.0"


def main(directory: str, topic: str, table: str, registry: str | None, once: bool) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # default: python3 on PATH, which may not have kafkalog
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--packages {PACKAGES} pyspark-shell")
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import max, min

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    offsets = (
        spark.readStream.format("kafkalog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load(directory)
        .select("partition", "offset")  # the values of a batch are read below
    )

    def append(batch: DataFrame, number: int) -> None:
        ranges = batch.groupBy("partition").agg(min("offset").alias("first"), max("offset").alias("last")).collect()
        if not ranges:
            return
        records = (
            spark.read.format("kafkalog")
            .option("assign", json.dumps({topic: [row.partition for row in ranges]}))
            .option("startingOffsets", json.dumps({topic: {str(row.partition): row.first for row in ranges}}))
            .option("endingOffsets", json.dumps({topic: {str(row.partition): row.last + 1 for row in ranges}}))
            .option("isolationLevel", "read_committed")
            .option("value.format", "confluent-avro")
            .option("mode", "FAILFAST")  # a value that cannot be read stops the query instead of becoming nulls
        )
        if registry is not None:  # default: the topic _schemas of the log directory
            records = records.option("value.schema.registry.url", registry)
        rows = records.load(directory).selectExpr("struct(topic, partition, offset, timestamp) AS kafka", "value.*")
        write = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        write.option("txnAppId", topic).option("txnVersion", number).save(table)

    writer = offsets.writeStream.foreachBatch(append).option("checkpointLocation", str(Path(table) / "_checkpoint"))
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    print(f"{spark.read.format('delta').load(table).count()} rows in {table}")
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("topic")
    parser.add_argument("table")
    parser.add_argument("--registry")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    main(given.directory, given.topic, given.table, given.registry, given.once)
