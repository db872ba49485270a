"""A query that copies a topic's values to Parquet files until it is killed.

python -m tests.spark.stream_to_parquet LOG_DIRECTORY OUT CHECKPOINT [name=value ...]; run by test_streaming_crashes.py.
"""

from __future__ import annotations

import os
import sys

from tests.spark.killed_with_parent import kill_with_parent


def main(log_dir: str, out: str, checkpoint: str, *options: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafkalog").options(**dict(option.split("=", 1) for option in options))
    (
        reader.load(log_dir)
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .start(out)
        .awaitTermination()
    )


if __name__ == "__main__":
    kill_with_parent()
    main(*sys.argv[1:])
