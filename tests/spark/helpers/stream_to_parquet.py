"""A query that copies a topic's values to Parquet files until it is killed.

python -m tests.spark.helpers.stream_to_parquet LOG_DIRECTORY OUT CHECKPOINT [name=value ...]; run by
test_streaming_crashes.py.
"""

from __future__ import annotations

import sys

from tests.spark.helpers.killed_with_parent import kill_with_parent
from tests.spark.helpers.streams import start_query
from tests.spark_session import new_session


def main(log_dir: str, out: str, checkpoint: str, *options: str) -> None:
    spark = new_session("local[2]")
    reader = spark.readStream.format("kafkalog").options(**dict(option.split("=", 1) for option in options))
    query = start_query(
        reader.load(log_dir)
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint),
        out,
    )
    query.awaitTermination()


if __name__ == "__main__":
    kill_with_parent()
    main(*sys.argv[1:])
