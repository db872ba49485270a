"""Read a log directory in a bucket with a Spark cluster:

python examples/read_bucket.py s3a://bucket/kafka-logs [TOPIC [MASTER]]

Credentials and endpoint come from the usual sources of S3 clients (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL, the profile, the machine's role) or from fs.s3a.* options (docs/object_storage.md).
MASTER "local-cluster[2,1,1024]" starts two executors in separate processes, which share only the bucket.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, expr, window


def main(url: str, topic: str, master: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # default: python3 on PATH, which may not have kafkalog
    spark = (
        SparkSession.builder.master(master)
        .appName("kafkalog: a bucket")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    orders = (
        spark.read.format("kafkalog")
        .option("subscribe", topic)
        .option("columns", "partition,offset,timestamp")  # other columns are not decoded
        .load(url)
    )
    orders.groupBy("partition").agg(count("offset").alias("records"), expr("max(offset)")).orderBy("partition").show()
    last = orders.agg({"timestamp": "max"}).first()[0]
    print(f"{orders.count()} records up to {last}")

    # Only the parts of segments with records of the last minute are fetched.
    start = int(last.timestamp() * 1000) - 60_000
    recent = spark.read.format("kafkalog").option("subscribe", topic).option("startingTimestamp", str(start)).load(url)
    recent.groupBy(window(col("timestamp"), "10 seconds").start.alias("from")).count().orderBy("from").show()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(
        sys.argv[1],
        sys.argv[2] if len(sys.argv) > 2 else "orders",
        sys.argv[3] if len(sys.argv) > 3 else "local[*]",
    )
