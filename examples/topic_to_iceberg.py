"""Append the new records of a topic to an Iceberg table, exactly once, decoded with the schema of a registry.

    python examples/topic_to_iceberg.py LOG_DIRECTORY TOPIC WAREHOUSE TABLE [--registry URL]

Requires pyspark 4.1, the newest release with a runtime of Iceberg 1.12. Run it every minute, one run at a time. The
start offsets of the next run are in the summary of the table's snapshot, which Iceberg commits atomically with the
rows. So a killed run has committed both or neither, and after a rollback of the table the next run reads the records
again. Columns that a later schema adds are added to the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
OFFSETS = "kafkalog.offsets"
EARLIEST = -2


def main(directory: str, topic: str, warehouse: str, table: str, registry: str | None) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # default: python3 on PATH, which may not have kafkalog
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--packages {PACKAGES} pyspark-shell")
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        .getOrCreate()
    )
    name = f"lake.{table}"
    ends = end_offsets(spark, directory, topic)
    committed = committed_offsets(spark, name)
    starts = {partition: committed.get(partition, EARLIEST) for partition in ends}
    records = (
        spark.read.format("kafkalog")
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: starts}))
        .option("endingOffsets", json.dumps({topic: ends}))
        .option("isolationLevel", "read_committed")
        .option("value.format", "confluent-avro")
        .option("mode", "FAILFAST")  # a value that cannot be read stops the run instead of becoming nulls
    )
    if registry is not None:  # default: the topic _schemas of the log directory
        records = records.option("value.schema.registry.url", registry)
    rows = records.load(directory).selectExpr("struct(topic, partition, offset, timestamp) AS kafka", "value.*")
    if not spark.catalog.tableExists(name):
        rows.limit(0).writeTo(name).tableProperty("write.spark.accept-any-schema", "true").create()
    if starts != ends:
        write = rows.writeTo(name).option("mergeSchema", "true")
        write.option(f"snapshot-property.{OFFSETS}", json.dumps(ends)).append()
    print(f"{spark.table(name).count()} rows in {table}")
    spark.stop()


def end_offsets(spark: SparkSession, directory: str, topic: str) -> dict[str, int]:
    """Return the last stable offset of each partition."""
    partitions = spark.read.format("kafkalog").option("subscribe", topic).option("table", "partitions").load(directory)
    return {str(row.partition): row.last_stable_offset for row in partitions.collect()}


def committed_offsets(spark: SparkSession, name: str) -> dict[str, int]:
    """Return the offsets in the newest snapshot of the table's history that has them; compactions write none."""
    if not spark.catalog.tableExists(name):
        return {}
    summaries = spark.sql(
        f"SELECT s.summary FROM {name}.snapshots s JOIN {name}.history h USING (snapshot_id) "
        "WHERE h.is_current_ancestor ORDER BY h.made_current_at DESC"
    ).collect()
    for row in summaries:
        if OFFSETS in row.summary:
            offsets: dict[str, int] = json.loads(row.summary[OFFSETS])
            return offsets
    if spark.table(name).limit(1).count():
        sys.exit(f"{name} has rows but no snapshot with {OFFSETS}: another program wrote them, or it has expired")
    return {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("topic")
    parser.add_argument("warehouse")
    parser.add_argument("table")
    parser.add_argument("--registry")
    given = parser.parse_args()
    main(given.directory, given.topic, given.warehouse, given.table, given.registry)
