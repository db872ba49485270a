"""make demo: read a log directory that a real Kafka 4.3.0 wrote, with Spark and without a broker. Then start our
broker, let four producers write, and read the live partitions: again and again as a table, and as a stream.

    python examples/demo.py [LOG_DIRECTORY]      (default: the one shipped in tests/golden)

Prints the table's schema, sample rows, a summary per partition, throughput, and what each batch of the stream held.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import sys
import time
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "kafka-4.3.0" / "data"


def spark_session():  # type: ignore[no-untyped-def]
    """A local Spark whose workers run this Python; quiet, and on loopback only."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the first python3 on PATH, which may lack our packages
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("kafkalog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "true" if sys.stderr.isatty() else "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def main(directory: str) -> None:
    print(f"starting Spark to read {os.path.relpath(directory)} ...", flush=True)
    spark = spark_session()
    from pyspark.sql import functions as f

    began = time.perf_counter()
    df = spark.read.format("kafkalog").option("allTopics", True).option("includeHeaders", True).load(directory)
    print('\nspark.read.format("kafkalog").option("allTopics", True).option("includeHeaders", True).load(...)')
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
    print(f"\n{time.perf_counter() - began:.1f} s after Spark was up. No broker was started so far.\n")
    live(spark)
    spark.stop()


TOPIC, PRODUCERS, RECORDS = "live", 4, 250_000  # records of each producer
STREAMED = 100  # records of the stream at the end
_PROGRESS_EVERY = 5_000


def live(spark) -> None:  # type: ignore[no-untyped-def]
    """Start the broker, run four producers in parallel, read the partitions with Spark while they write, and then
    follow one of them as a stream."""
    from tqdm import tqdm

    from kafkalog_broker.testing import running_broker

    began = time.perf_counter()
    with running_broker(topics={TOPIC: PRODUCERS}) as broker:
        print(f"kafkalog-broker serves {broker.bootstrap} after {time.perf_counter() - began:.1f} s")
        frame = spark.read.format("kafkalog").option("subscribe", TOPIC).option("columns", "partition,offset")
        seen: list[int] = []
        context = multiprocessing.get_context("spawn")  # a fork of a process with a JVM bridge is no good
        progress = context.Queue()
        with (
            context.Pool(PRODUCERS, initializer=_take_queue, initargs=(progress,)) as pool,
            tqdm(total=PRODUCERS * RECORDS, unit=" records", unit_scale=True, desc="4 producers") as bar,
        ):
            working = pool.map_async(produce, [(broker.bootstrap, partition) for partition in range(PRODUCERS)])
            while not working.ready() or not progress.empty():
                with contextlib.suppress(queue.Empty):
                    bar.update(progress.get(timeout=0.2))
                if bar.n > (len(seen) + 1) * PRODUCERS * RECORDS // 4:
                    seen.append(frame.load(str(broker.log_dir)).count())
            took = max(working.get())
        print(f"counted by Spark meanwhile: {', '.join(f'{count:,}' for count in seen)} records")
        print(f"{PRODUCERS * RECORDS / took:,.0f} records/s of 100 bytes acknowledged (acks=all)")
        frame.load(str(broker.log_dir)).groupBy("partition").count().orderBy("partition").show()
        stream(spark, broker)
    print("the broker has stopped cleanly, its directory is removed")


def stream(spark, broker) -> None:  # type: ignore[no-untyped-def]
    """Follow the topic from its end on while a few more records are sent, one by one."""
    import tempfile

    from confluent_kafka import Producer

    batches: list[int] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("kafkalog")
            .option("subscribe", TOPIC)
            .load(str(broker.log_dir))
            .selectExpr("cast(value as string)")
            .writeStream.foreachBatch(lambda batch, _: batches.append(batch.count()))
            .option("checkpointLocation", checkpoint)
            .start()
        )
        query.processAllAvailable()  # the first batch settles where the stream begins
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(STREAMED):
            producer.produce(TOPIC, b"%d" % number, partition=number % PRODUCERS)
            producer.flush(10)
            time.sleep(0.02)
        query.processAllAvailable()
        query.stop()
    held = [count for count in batches if count]
    print(f'readStream.format("kafkalog"): {sum(held)} records sent one by one came in {len(held)} batches: {held}')


_queue: Any = None


def _take_queue(progress: Any) -> None:
    global _queue
    _queue = progress


def produce(task: tuple[str, int]) -> float:
    """Send RECORDS records to one partition; the seconds from the first to the last acknowledgement."""
    from confluent_kafka import Producer

    bootstrap, partition = task
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262_144})
    producer.list_topics(TOPIC, timeout=10)
    value = os.urandom(50) + b"kafkalog. " * 5
    began = time.perf_counter()
    for number in range(1, RECORDS + 1):
        while True:
            try:
                producer.produce(TOPIC, value, partition=partition)
                break
            except BufferError:  # the queue is full: let deliveries in
                producer.poll(0.05)
        if number % _PROGRESS_EVERY == 0:
            producer.poll(0)
            _queue.put(_PROGRESS_EVERY)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged in a minute")
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(SHIPPED))
