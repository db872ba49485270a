"""make demo: read a log directory that a real Kafka 4.3.0 wrote, with Spark and without a broker.

    python examples/demo.py [LOG_DIRECTORY]      (default: the one shipped in tests/golden)

Prints the table's schema, sample rows, and a summary per partition.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "kafka-4.3.0" / "data"


def spark_session():  # type: ignore[no-untyped-def]
    """A local Spark whose workers run this Python; quiet, and on loopback only."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the first python3 on PATH, which may lack our packages
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "true" if sys.stderr.isatty() else "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # Python workers talk to Spark over Unix domain sockets: 30 % more rows a second
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def main(directory: str) -> None:
    print(f"starting Spark to read {os.path.relpath(directory)} ...", flush=True)
    spark = spark_session()
    from pyspark.sql import functions as f

    began = time.perf_counter()
    df = spark.read.format("kafkalog").option("includeHeaders", "true").load(directory)
    print('\nspark.read.format("kafkalog").option("includeHeaders", "true").load(...)')
    df.printSchema()

    print('the first offsets of one topic (endingOffsets={"java-lz4":{"0":8}}):')
    (
        spark.read.format("kafkalog")
        .option("subscribe", "java-lz4")
        .option("endingOffsets", '{"java-lz4":{"0":8}}')
        .option("includeHeaders", "true")
        .load(directory)
        .select("offset", "timestamp", f.col("key").cast("string"), f.col("value").cast("string"), "headers")
        .show(truncate=34)
    )

    print("all topics that are not Kafka's own:")
    (
        df.groupBy("topic", "partition")
        .agg(
            f.count("*").alias("records"),
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.sum(f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))).alias("bytes"),
            f.max("timestamp").alias("latest"),
            f.count("headers").alias("with headers"),
        )
        .orderBy("topic", "partition")
        .show(100, truncate=False)
    )

    print("only what was committed (isolationLevel=read_committed), and only the offsets (columns=topic,offset):")
    for level in ("read_uncommitted", "read_committed"):
        rows = (
            spark.read.format("kafkalog")
            .option("subscribe", "transactions")
            .option("isolationLevel", level)
            .option("columns", "topic,offset")
            .load(directory)
            .count()
        )
        print(f"  transactions, {level:16}: {rows} records")
    print(f"\n{time.perf_counter() - began:.1f} s after Spark was up. No broker was started.")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(SHIPPED))
