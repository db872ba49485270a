"""Copy a topic from one log directory to another. No broker may be running on the target:

python examples/copy_topic.py LOG_DIRECTORY TARGET_LOG_DIRECTORY TOPIC [NEW_NAME]

Records keep their partitions, order, keys, headers and timestamps. If a broker is running on the target, give its
host:port instead of the directory: the records are then produced to it, at least once.
"""

from __future__ import annotations

import re
import sys

import pyspark.sql.functions as F
from demo import spark_session  # type: ignore[import-not-found]  # next to this file


def main(directory: str, target: str, topic: str, new_name: str) -> None:
    spark = spark_session()
    records = (
        spark.read.format("kafkalog")
        .option("subscribe", topic)
        .option("includeHeaders", True)
        .option("isolationLevel", "read_committed")  # no records of aborted transactions
        .load(directory)
    )
    partitions = records.agg({"partition": "max"}).first()[0] + 1
    # A message without a timestamp (magic 0) has -1 ms, which a producer must not send.
    timestamp = F.when(F.col("timestamp") >= F.timestamp_millis(F.lit(0)), F.col("timestamp"))
    copied = (
        records.withColumn("timestamp", timestamp)
        .repartition(partitions, "partition")
        .sortWithinPartitions("partition", "offset")
        .write.format("kafkalog")
        .mode("append")
        .option("topic", new_name)
    )
    if re.fullmatch(r"[^/]+:\d+", target):
        copied.option("kafka.bootstrap.servers", target).save()
    else:
        copied.option("numPartitions", partitions).save(target)
    print(f"{records.count()} records of {topic} copied to {new_name} in {target}")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    directory, target, topic, *renamed = sys.argv[1:]
    main(directory, target, topic, renamed[0] if renamed else topic)
