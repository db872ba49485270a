"""Demonstration for `make demo`, in two parts: reading an existing log directory, and reading while a broker writes.

    python examples/demo.py [LOG_DIRECTORY]      (default: the one shipped in tests/golden)

Spark first reads a log directory that Apache Kafka 4.3.0 wrote, without a broker. Then kafkalog-broker is started, four
producers write to it, and Spark reads its partitions as a table and as a stream. Spark's log goes to a file, which is
printed if Spark does not start.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "kafka-4.3.0" / "data"
BEGAN = time.perf_counter()

TIMEOUT_S = 300  # longest wait for another process, on a busy machine
WORKER_NOT_STARTED = "Python worker failed to connect back"
"""Part of Spark's error if a Python worker has not started within 10 s. No setting changes this limit."""


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGAN:5.1f} s  {text}", flush=True)


def show(frame: Any, truncate: int) -> None:
    """Print a data frame as an indented table."""
    with contextlib.redirect_stdout(io.StringIO()) as table:
        frame.show(truncate=truncate)
    print("".join(f"         {line}\n" for line in table.getvalue().strip().splitlines()), flush=True)


@contextlib.contextmanager
def redirected_stderr(path: Path) -> Iterator[None]:
    """Redirect stderr to a file. Processes that are started in the block keep the file as their stderr."""
    saved = os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def spark_session(log: Path | None = None):  # type: ignore[no-untyped-def]
    """Return a local Spark session on the loopback interface, whose workers run this Python.

    Args:
        log: File for the output of the JVM; None to print errors only.
    """
    # By default, Spark starts the first python3 on PATH, which may not have kafkalog.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        sys.exit(f"{sys.executable} has no Spark: type make demo, or install kafkalog[spark] there.")

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # for a busy machine
        .config("spark.python.authenticate.socketTimeout", f"{TIMEOUT_S}s")
        .config("spark.network.timeout", f"{2 * TIMEOUT_S}s")
    )
    if log is None:
        return builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        with redirected_stderr(log):
            return builder.getOrCreate()
    except Exception:  # noqa: BLE001 - the JVM and py4j raise various errors; the file has the reason
        sys.exit(f"Spark did not start:\n{log.read_text()}")


def with_one_retry(step: Callable[..., None], *arguments: Any) -> None:
    """Run a step, and once more if a Python worker did not start within Spark's limit."""
    for is_last in (False, True):
        try:
            step(*arguments)
        except Exception as error:
            if WORKER_NOT_STARTED not in str(error):
                raise
            if is_last:
                sys.exit(
                    "A Python worker of Spark did not start within 10 s, which is a fixed limit, in two attempts. "
                    "Try again when the machine is less busy."
                )
            say("A Python process did not start within Spark's 10 s. Trying once more.")
        else:
            return


def main(directory: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        say("Spark starts.")
        spark = spark_session(Path(folder) / "spark.log")
        with_one_retry(read_files, spark, directory)
        read_live(spark)
        spark.stop()
    say("Done. The broker has stopped and its directory is removed. Try next:\n")
    programs = Path(sys.executable).parent
    short = os.path.relpath(programs) if programs.is_relative_to(Path.cwd()) else str(programs)
    for command, meaning in (
        (f"{short}/kafkalog-cat {os.path.relpath(directory)} -t java-lz4 -o -3", "records on the command line"),
        (f"{short}/kafkalog-check {os.path.relpath(directory)}", "is it intact?"),
        (f"{short}/kafkalog-broker --log-dir ./data", "a broker on 127.0.0.1:9092"),
    ):
        print(f"         # {meaning}\n         {command}")


def read_files(spark, directory: str) -> None:  # type: ignore[no-untyped-def]
    """Show first rows of the log directory, a summary of its topics, and the effect of isolationLevel."""
    from pyspark.sql import functions as f

    def load(topic: str, **options: object):  # type: ignore[no-untyped-def]
        return spark.read.format("kafkalog").options(subscribe=topic, **options).load(directory)

    first = load("java-lz4").select("offset", f.col("key").cast("string"), f.col("value").cast("string")).limit(4)
    rows = spark.createDataFrame(first.collect(), first.schema)
    say("First rows, read from the files of a Kafka 4.3, without a broker:")
    show(rows, truncate=34)

    began = time.perf_counter()
    everything = spark.read.format("kafkalog").options(allTopics=True).load(directory)
    summary = everything.groupBy("topic").agg(
        f.countDistinct("partition").alias("partitions"),
        f.count("*").alias("records"),
        f.sum(f.coalesce(f.length("value"), f.lit(0))).alias("bytes"),
        f.date_format(f.max("timestamp"), "yyyy-MM-dd HH:mm").alias("latest"),
    )
    topics = summary.orderBy(f.desc("records")).collect()
    records = sum(row.records for row in topics)
    say(f"All {len(topics)} topics: {records:,} records in {time.perf_counter() - began:.1f} s. The largest ones:")
    show(spark.createDataFrame(topics[:8], summary.schema), truncate=16)

    counts = [load("transactions", isolationLevel=level).count() for level in ("read_uncommitted", "read_committed")]
    say(f"With aborted transactions: {counts[0]} records, {counts[1]} of them read_committed.\n")


TOPIC, PRODUCERS = "live", 4
RECORDS = 500_000  # records of each producer
STREAMED = 100  # records of the stream at the end
_PROGRESS_EVERY = 5_000  # records between two updates of the progress bar


def read_live(spark) -> None:  # type: ignore[no-untyped-def]
    """Start a broker, count its records with Spark while four producers write, then read the topic as a stream."""
    from tqdm import tqdm

    from kafkalog_broker.testing import running_broker

    began = time.perf_counter()
    with running_broker(topics={TOPIC: PRODUCERS}) as broker:
        say(f"kafkalog-broker serves {broker.bootstrap}, {time.perf_counter() - began:.1f} s after its start.")
        frame = spark.read.format("kafkalog").option("subscribe", TOPIC).option("columns", "partition,offset")
        counts: list[int] = []
        sent = 0
        context = multiprocessing.get_context("spawn")  # py4j's connection to the JVM does not survive a fork
        progress = context.Queue()
        with (
            context.Pool(PRODUCERS, initializer=_set_progress_queue, initargs=(progress,)) as pool,
            tqdm(
                total=PRODUCERS * RECORDS, unit=" records", unit_scale=True, desc="         4 producers", ncols=79,
                leave=False, disable=None,
            ) as bar,
        ):  # fmt: skip
            working = pool.map_async(produce, [(broker.bootstrap, partition) for partition in range(PRODUCERS)])
            while not working.ready() or not progress.empty():
                with contextlib.suppress(queue.Empty):
                    sent += (count := progress.get(timeout=0.2))
                    bar.update(count)
                if sent > (len(counts) + 1) * PRODUCERS * RECORDS // 4 and not working.ready():
                    counts.append(frame.load(str(broker.log_dir)).count())
            seconds = max(working.get())
        total = PRODUCERS * RECORDS
        say(f"Four producers sent {total:,} records, {total / seconds:,.0f} a second, acks=all.")
        say(f"Spark counted meanwhile: {', '.join(f'{count:,}' for count in counts)}.")
        began = time.perf_counter()
        count = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(broker.log_dir)).count()
        say(f"And all of them afterwards: {count:,} in {time.perf_counter() - began:.1f} s.")
        with_one_retry(read_stream, spark, broker)


def read_stream(spark, broker) -> None:  # type: ignore[no-untyped-def]
    """Read the topic as a stream from its end, while a few more records are sent one by one."""
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
        query.processAllAvailable()  # the first batch determines the start offset of the stream
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})  # no errors when the broker stops
        for number in range(STREAMED):
            producer.produce(TOPIC, b"%d" % number, partition=number % PRODUCERS)
            producer.flush(TIMEOUT_S)
            time.sleep(0.02)
        query.processAllAvailable()
        query.stop()
    counts = [count for count in batches if count]
    say(f"A stream followed: {sum(counts)} records, sent singly, in {len(counts)} micro-batches.")


_progress_queue: Any = None


def _set_progress_queue(progress: Any) -> None:
    global _progress_queue
    _progress_queue = progress


def produce(task: tuple[str, int]) -> float:
    """Send RECORDS records to one partition. Return the seconds from the first record to the last acknowledgement."""
    from confluent_kafka import Producer

    bootstrap, partition = task
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262_144, "log_level": 0}
    )
    producer.list_topics(TOPIC, timeout=TIMEOUT_S)
    value = os.urandom(50) + b"kafkalog. " * 5
    began = time.perf_counter()
    for number in range(1, RECORDS + 1):
        while True:
            try:
                producer.produce(TOPIC, value, partition=partition)
                break
            except BufferError:  # the queue is full: process acknowledgements
                producer.poll(0.05)
        if number % _PROGRESS_EVERY == 0:
            producer.poll(0)
            _progress_queue.put(_PROGRESS_EVERY)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"records were not acknowledged in {TIMEOUT_S} s")
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(SHIPPED))
