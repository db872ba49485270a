"""Topics with many small partitions: reads, and a stream with the memory of its planning process.

    1,000 partitions of 14 records       count(), limit(1), limit(1).count()
    5,000 partitions of one record       count()
    1,000 partitions, 1.4 kB a trigger   seconds of a trigger, memory of the planning process
    4 partitions of 250,000 records      rows per second, compared with the upper limit; one task per partition

The first and the last one are compared with format("kafka"), for which kafkalog-broker serves a copy of the files. Each
count() is compared with a trivial Python source that has one task per partition, to show the effect of sharing tasks.
kafkalog writes the logs to ~/.cache/kafkalog-bench.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import home
from kafkalog_broker.testing import running_broker
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.task_packing import tasks_of
from tests.interop.connector import Connector
from tests.source.helpers.made_logs import MadeBatch, write_batches

NOTHING = "benchmarks.sources:Nothing"
CEILING = "benchmarks.sources:Ceiling"
DAEMON = {"spark.python.daemon.module": "kafkalog_spark.daemon"}
FIRST_TIMESTAMP = 1_700_000_000_000
TRIGGERS = 6
CONNECTOR_SECONDS = 600
"""Limit for a query of the connector. On an idle machine it needs almost five minutes for 1,000 partitions."""

TOPICS: Mapping[str, tuple[int, int, int, int]] = {
    "many": (1000, 1, 14, 100),
    "wide": (5000, 1, 1, 100),
    "triggers": (1000, TRIGGERS, 1, 1400),
    "large": (4, 500, 500, 100),
}
"""Partitions, batches of a partition, records of a batch and bytes of a value, by topic."""


def log_dir(topic: str) -> Path:
    """Return a log directory with only this topic, which is written at the first call."""
    path = home() / f"partitions-{topic}"
    if path.exists():
        return path
    partitions, batches, records, size = TOPICS[topic]
    print(f"writing {partitions} partitions ...", flush=True)
    home().mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=home()))
    written = [MadeBatch([b"v" * size] * records, [FIRST_TIMESTAMP] * records)] * batches
    for partition in range(partitions):
        write_batches(unfinished, topic, partition, written, index_interval_bytes=4096)
    return unfinished.rename(path)


def tasks(topic: str) -> int:
    """Return the number of tasks of a read of the topic on this machine."""
    options = parse_read_options({"path": str(log_dir(topic)), "subscribe": topic})
    return len(tasks_of(plan(options, RowFilter()), options))


def counted(report: Report, ours: SparkSession, topic: str, rounds: int) -> None:
    """Report count() of a topic."""
    partitions, batches, records, _ = TOPICS[topic]
    path = str(log_dir(topic))
    seconds = in_turn(
        {
            "kafkalog": partial(
                ours.run,
                "kafkalog",
                {"subscribe": topic},
                path=path,
                action="count",
                expect=partitions * batches * records,
            ),
            "nothing": partial(
                ours.run,
                "nothing",
                {"partitions": partitions},
                register=NOTHING,
                action="count",
                expect=10 * partitions,
            ),
        },
        rounds=rounds,
        warmups=1,
    )
    report.add(
        "many_partitions",
        f"count() of {partitions} partitions of {batches * records} records",
        seconds=round(statistics.median(seconds["kafkalog"]), 2),
        tasks=tasks(topic),
        a_task_each_that_does_nothing_seconds=round(statistics.median(seconds["nothing"]), 2),
        x_a_task_each=round(ratio(seconds["nothing"], seconds["kafkalog"]), 1),
    )


def limited(report: Report, session: SparkSession, settings: str, rounds: int) -> None:
    """Report limit(1), after which Spark stops the workers."""
    topic = "many"
    path = str(log_dir(topic))
    query = partial(session.run, "kafkalog", {"subscribe": topic}, path=path, limit=1)
    seconds = in_turn(
        {"collect": partial(query, action="collect", expect=1), "count": partial(query, action="count", expect=1)},
        rounds=rounds,
    )
    report.add(
        "many_partitions",
        f"limit(1) of {TOPICS[topic][0]} partitions, {settings}",
        collect_seconds=round(statistics.median(seconds["collect"]), 2),
        count_seconds=round(statistics.median(seconds["count"]), 2),
    )


def triggered(report: Report, session: SparkSession) -> None:
    """Report a stream that reads one record batch of each partition per trigger."""
    partitions, batches, _, size = TOPICS["triggers"]
    ended = threading.Event()
    peaks = [0]

    def watch() -> None:
        while not ended.wait(0.1):
            peaks[0] = max(peaks[0], session.peak_mb("python_streaming_source_runner") or 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    checkpoint = tempfile.mkdtemp()
    try:
        ran = session.triggers(
            "kafkalog",
            {"subscribe": "triggers", "startingOffsets": "earliest", "maxBytesPerTrigger": 1},
            path=str(log_dir("triggers")),
            checkpoint=checkpoint,
        )
    finally:
        ended.set()
        watcher.join()
        shutil.rmtree(checkpoint, ignore_errors=True)
    assert [rows for _, rows, _ in ran] == [partitions] * batches, ran
    report.add(
        "many_partitions",
        f"stream of {partitions} partitions, {size} B of each in a trigger",
        first_trigger_seconds=round(ran[0][2] / 1000, 2),
        other_triggers_seconds=round(statistics.median(ms for _, _, ms in ran[1:]) / 1000, 2),
        longest_of_these_seconds=round(max(ms for _, _, ms in ran[1:]) / 1000, 2),
        planning_process_peak_MB=peaks[0],
    )


def large(report: Report, session: SparkSession, rounds: int) -> None:
    """Report a read of few partitions with many records."""
    partitions, batches, records, size = TOPICS["large"]
    path = str(log_dir("large"))
    seconds = in_turn(
        {
            "kafkalog": partial(session.run, "kafkalog", {"subscribe": "large"}, path=path),
            "ceiling": partial(
                session.run,
                "ceiling",
                {"rows": batches * records, "value_size": size, "topic": "large"},
                register=CEILING,
            ),
        },
        rounds=rounds,
    )
    report.add(
        "many_partitions",
        f"{partitions} partitions of {batches * records} records",
        M_rows_per_s=rate(partitions * batches * records / 1e6, seconds["kafkalog"]),
        tasks=tasks("large"),
        x_ceiling=round(ratio(seconds["ceiling"], seconds["kafkalog"]), 2),
    )


@contextlib.contextmanager
def served(topic: str) -> Iterator[str]:
    """Serve a copy of the topic's log directory, because a broker modifies it. Yield the bootstrap address."""
    with tempfile.TemporaryDirectory(dir=home()) as directory:
        copy = Path(directory) / "data"
        identity = shutil.ignore_patterns("meta.properties")  # the broker writes its own
        shutil.copytree(log_dir(topic), copy, ignore=identity, copy_function=shutil.copyfile)
        with running_broker({"log.retention.ms": -1}, log_dir=copy) as broker:
            yield broker.bootstrap


def connected(report: Report, ours: SparkSession, theirs: SparkSession, topic: str, action: str, rounds: int) -> None:
    """Report a query and the same query with format("kafka"), which is cancelled after CONNECTOR_SECONDS."""
    partitions, batches, records, _ = TOPICS[topic]
    counted = {"action": action, **({"expect": partitions * batches * records} if action == "count" else {})}
    with served(topic) as bootstrap:
        kafka = {"subscribe": topic, "kafka.bootstrap.servers": bootstrap}
        runs = {
            "kafkalog": partial(ours.run, "kafkalog", {"subscribe": topic}, path=str(log_dir(topic)), **counted),
            "kafka": partial(theirs.run, "kafka", kafka, within=CONNECTOR_SECONDS, **counted),
        }
        try:
            seconds = in_turn(runs, rounds=rounds, warmups=1 if rounds > 1 else 0)
        except RuntimeError as error:
            if "cancel" not in str(error):
                raise
            seconds = {"kafkalog": [runs["kafkalog"]()], "kafka": []}
    figures: dict[str, object] = {"kafkalog_seconds": round(statistics.median(seconds["kafkalog"]), 2)}
    if seconds["kafka"]:
        figures["kafka_seconds"] = round(statistics.median(seconds["kafka"]), 2)
        figures["x_kafka"] = round(ratio(seconds["kafka"], seconds["kafkalog"]), 2)
    else:
        figures["kafka_seconds"] = f"more than {CONNECTOR_SECONDS}, cancelled"
    report.add(
        "many_partitions",
        f"{action} of {partitions} partitions of {batches * records} records, beside the connector",
        **figures,
    )


def main(report: Report, rounds: int = 3) -> None:
    """Run all measurements with Spark's default settings, and limit(1) also with kafkalog's daemon module."""
    for topic in TOPICS:
        log_dir(topic)
    with SparkSession() as session:
        limited(report, session, "default settings", rounds)
        triggered(report, session)
        large(report, session, rounds)
        counted(report, session, "many", rounds)
        counted(report, session, "wide", rounds=1)
    with SparkSession(DAEMON) as session:
        limited(report, session, "spark.python.daemon.module=kafkalog_spark.daemon", rounds)
    connector = Connector.install()
    with SparkSession() as session, SparkSession(connector.conf, connector.python) as theirs:
        session.run("kafkalog", {"subscribe": "many"}, path=str(log_dir("many")), action="count")  # warm-up
        connected(report, session, theirs, "large", "noop", rounds)
        connected(report, session, theirs, "many", "count", rounds=1)


if __name__ == "__main__":
    main(Report())
