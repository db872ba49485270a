"""make demo: a log directory that a real Kafka 4.3.0 wrote, read with Spark and without a broker; then a broker of our
own, four producers that write to it, and Spark on its live partitions, as a table and as a stream.

    python examples/demo.py [LOG_DIRECTORY]      (default: the one shipped in tests/golden)

Each step prints one sentence and its figure. Spark's own log goes to a file that is shown if Spark does not start.
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

PATIENCE_S = 300  # the longest wait for another process, on a busy machine
NO_PYTHON = "Python worker failed to connect back"
"""In Spark's error if a Python process has not started within 10 s. No setting changes this limit."""


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGAN:5.1f} s  {text}", flush=True)


def show(frame: Any, truncate: int) -> None:
    """A small table, indented under its step."""
    with contextlib.redirect_stdout(io.StringIO()) as table:
        frame.show(truncate=truncate)
    print("".join(f"         {line}\n" for line in table.getvalue().strip().splitlines()), flush=True)


@contextlib.contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their standard error to this file, for as long as they live."""
    kept = os.dup(2)
    with path.open("w") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def spark_session(log: Path | None = None):  # type: ignore[no-untyped-def]
    """A local Spark whose workers run this Python, on loopback only. log: the file that its warnings go to."""
    # else the first python3 on PATH, which may lack our packages
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
        .config("spark.python.authenticate.socketTimeout", f"{PATIENCE_S}s")
        .config("spark.network.timeout", f"{2 * PATIENCE_S}s")
    )
    if log is None:
        return builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        with standard_error_in(log):
            return builder.getOrCreate()
    except Exception:  # noqa: BLE001 - whatever the JVM or py4j raises: its reason is in the file
        sys.exit(f"Spark did not start:\n{log.read_text()}")


def patiently(step: Callable[..., None], *given: Any) -> None:
    """Run a step; run it a second time if a Python process did not start within Spark's limit."""
    for is_last in (False, True):
        try:
            step(*given)
        except Exception as error:
            if NO_PYTHON not in str(error):
                raise
            if is_last:
                sys.exit(
                    "The machine took more than 10 s, twice, to start a Python process for Spark, which waits no "
                    "longer: try again when it has less to do."
                )
            say("A Python process did not start within Spark's 10 s. Trying once more.")
        else:
            return


def main(directory: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        say("Spark starts.")
        spark = spark_session(Path(folder) / "spark.log")
        patiently(files, spark, directory)
        live(spark)
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


def files(spark, directory: str) -> None:  # type: ignore[no-untyped-def]
    """The shipped log directory: first rows, a summary, and what isolationLevel leaves out."""
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


TOPIC, PRODUCERS, RECORDS = "live", 4, 500_000  # records of each producer
STREAMED = 100  # records of the stream at the end
_PROGRESS_EVERY = 5_000


def live(spark) -> None:  # type: ignore[no-untyped-def]
    """Start the broker, let four producers write while Spark counts, and then follow the topic as a stream."""
    from tqdm import tqdm

    from kafkalog_broker.testing import running_broker

    began = time.perf_counter()
    with running_broker(topics={TOPIC: PRODUCERS}) as broker:
        say(f"kafkalog-broker serves {broker.bootstrap}, {time.perf_counter() - began:.1f} s after its start.")
        frame = spark.read.format("kafkalog").option("subscribe", TOPIC).option("columns", "partition,offset")
        seen: list[int] = []
        sent = 0
        context = multiprocessing.get_context("spawn")  # a fork of a process with a JVM bridge is no good
        progress = context.Queue()
        with (
            context.Pool(PRODUCERS, initializer=_take_queue, initargs=(progress,)) as pool,
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
                if sent > (len(seen) + 1) * PRODUCERS * RECORDS // 4 and not working.ready():
                    seen.append(frame.load(str(broker.log_dir)).count())
            took = max(working.get())
        total = PRODUCERS * RECORDS
        say(f"Four producers sent {total:,} records, {total / took:,.0f} a second, acks=all.")
        say(f"Spark counted meanwhile: {', '.join(f'{count:,}' for count in seen)}.")
        began = time.perf_counter()
        count = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(broker.log_dir)).count()
        say(f"And all of them afterwards: {count:,} in {time.perf_counter() - began:.1f} s.")
        patiently(stream, spark, broker)


def stream(spark, broker) -> None:  # type: ignore[no-untyped-def]
    """Follow the topic from its end on while a few more records are sent, one by one."""
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
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})  # quiet when the broker stops
        for number in range(STREAMED):
            producer.produce(TOPIC, b"%d" % number, partition=number % PRODUCERS)
            producer.flush(PATIENCE_S)
            time.sleep(0.02)
        query.processAllAvailable()
        query.stop()
    counts = [count for count in batches if count]
    say(f"A stream followed: {sum(counts)} records, sent singly, in {len(counts)} micro-batches.")


_queue: Any = None


def _take_queue(progress: Any) -> None:
    global _queue
    _queue = progress


def produce(task: tuple[str, int]) -> float:
    """Send RECORDS records to one partition; the seconds from the first to the last acknowledgement."""
    from confluent_kafka import Producer

    bootstrap, partition = task
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262_144, "log_level": 0}
    )
    producer.list_topics(TOPIC, timeout=PATIENCE_S)
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
    if producer.flush(PATIENCE_S):
        raise RuntimeError(f"records were not acknowledged in {PATIENCE_S} s")
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(SHIPPED))
