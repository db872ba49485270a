"""Copy the records of many small segments to few large ones in a new log directory:

python examples/compact_small_segments.py LOG_DIRECTORY NEW_LOG_DIRECTORY TOPIC

A stream that writes every second leaves a segment for each micro-batch and partition. The copy has the same partitions,
order and timestamps. Offsets begin at 0 and have no gaps, so they are unchanged only if this was also true before.
"""

from __future__ import annotations

import sys
from pathlib import Path

from demo import spark_session  # type: ignore[import-not-found]  # next to this file


def main(directory: str, target: str, topic: str) -> None:
    spark = spark_session()
    records = (
        spark.read.format("kafkalog").option("subscribe", topic).option("includeHeaders", True).load(directory).cache()
    )
    partitions = records.agg({"partition": "max"}).first()[0] + 1
    (
        records.repartition(partitions, "partition")  # one task has all records of a partition,
        .sortWithinPartitions("partition", "offset")  # in the order of offsets
        .write.format("kafkalog")
        .mode("append")
        .option("numPartitions", partitions)
        .option("compression.type", "zstd")
        .option("batch.size", "256k")
        .save(target)
    )
    for name, path in (("before", directory), ("after", target)):
        segments = [file for file in Path(path).glob(f"{topic}-*/*.log") if file.stat().st_size]
        size = sum(file.stat().st_size for file in segments)
        print(f"{name}: {len(segments)} segments, {size / 1e6:.2f} MB")
    print(f"{records.count()} records")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
