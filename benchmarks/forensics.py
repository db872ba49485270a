"""Analysis of a log after an incident: the table `batches`, a search by key, the last records, and a repair.

`batches` and the repair run on one core without Spark; kafka-dump-log prints the same headers for comparison. The
searches run in Spark on `local[2]`, in turn with a filter in Spark after reading all records, and with the same filter
after format("kafka").
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.data import KEYED, LARGE_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import PARTITIONS, Topic, home
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka, run_tool

KEY = "user-424242"
TAIL = 100


def main(report: Report, rounds: int = 5) -> None:
    """Run all measurements."""
    large = LARGE_VALUES["none"]
    ensure([large, *KEYED.values()])
    batches(report, large, rounds)
    repair(report, large, rounds=3)
    tail(report, large, rounds)
    for topic in KEYED.values():
        search(report, topic, rounds)


def logs_of(topic: Topic) -> list[Path]:
    """Return the .log files of a topic."""
    path = ensure([topic])
    return [file for n in range(PARTITIONS) for file in sorted((path / f"{topic.name}-{n}").glob("*.log"))]


def batches(report: Report, topic: Topic, rounds: int) -> None:
    """Report reading all headers and CRCs of 2 GB as a table, compared with kafka-dump-log."""
    files, path = logs_of(topic), str(ensure([topic]))
    size = sum(file.stat().st_size for file in files)
    counts = set()

    def table() -> float:
        begin = time.perf_counter()
        counts.add(sum(batch.num_rows for batch in LogDirs.open(path).table("batches", topic.name)))
        return time.perf_counter() - begin

    def dump() -> float:
        begin = time.perf_counter()
        text = run_tool("DumpLogSegments", "--files", ",".join(map(str, files)))
        counts.add(text.count("baseOffset: "))
        return time.perf_counter() - begin

    seconds = in_turn({"table": table, "dump": dump}, rounds=min(rounds, 3), warmups=1)
    if len(counts) != 1:
        raise RuntimeError(f"the table and kafka-dump-log differ in the number of batches: {counts}")
    report.add(
        "forensics",
        f"table batches of {size / 1e9:.2f} GB, one core",
        GB_per_s=rate(size / 1e9, seconds["table"]),
        bar=1.5,
        kafka_dump_log_seconds=round(sorted(seconds["dump"])[len(seconds["dump"]) // 2], 2),
        x_kafka_dump_log=round(ratio(seconds["dump"], seconds["table"]), 1),
    )


def repair(report: Report, topic: Topic, rounds: int) -> None:
    """Report the repair of 2 GB, which copies all batches to a new directory and rebuilds the indexes."""
    sources = [ensure([topic]) / f"{topic.name}-{n}" for n in range(PARTITIONS)]
    size = sum(file.stat().st_size for file in logs_of(topic))

    def repaired() -> float:
        with temporary_directory() as target:
            begin = time.perf_counter()
            if not repair_log_dirs(sources, target).is_whole:
                raise RuntimeError("the copy of an undamaged directory is not complete")
            return time.perf_counter() - begin

    seconds = in_turn({"repair": repaired}, rounds=rounds, warmups=1)
    report.add(
        "forensics",
        f"repair of {size / 1e9:.2f} GB, one core",
        MB_per_s=rate(size / 1e6, seconds["repair"]),
        bar=300,
    )


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Create a directory, and remove it at the end of the block."""
    target = Path(tempfile.mkdtemp())
    try:
        yield target
    finally:
        shutil.rmtree(target)


def tail(report: Report, topic: Topic, rounds: int) -> None:
    """Report reading the last records of each partition of 2 GB, in Spark and without it after the first use."""
    path, wanted = str(ensure([topic])), TAIL * PARTITIONS

    def without_spark() -> float:
        begin = time.perf_counter()
        if sum(batch.num_rows for batch in LogDirs.open(path).scan(topic.name, tail=TAIL)) != wanted:
            raise RuntimeError(f"the scan did not return {wanted} records")
        return time.perf_counter() - begin

    with SparkSession() as ours:
        options = {"subscribe": topic.name, "tail": TAIL}
        in_spark = partial(ours.run, "kafkalog", options, path=path, action="count", expect=wanted)
        seconds = in_turn({"spark": in_spark, "python": without_spark}, rounds=rounds)
    report.add(
        "forensics",
        f"tail={TAIL} of {topic.records * topic.value_size / 1e9:g} GB",
        spark_seconds=round(sorted(seconds["spark"])[rounds // 2], 3),
        seconds_without_spark=round(sorted(seconds["python"])[rounds // 2], 4),
        bar=0.5,
    )


def search(report: Report, topic: Topic, rounds: int) -> None:
    """Report the search for all records of a key: by where.key, by a filter in Spark, and by the connector."""
    path, wanted = str(ensure([topic])), topic.records // 1_000_000
    connector = Connector.install()
    with (
        RealKafka(home()) as kafka,
        SparkSession(connector.conf, connector.python) as theirs,
        SparkSession() as ours,
    ):
        subscribed = {"subscribe": topic.name}
        counting = {"action": "count", "expect": wanted}
        filtering = {"filter": f"key = CAST('{KEY}' AS BINARY)", **counting}
        runs = {
            "search": partial(ours.run, "kafkalog", {**subscribed, "where.key": KEY}, path=path, **counting),
            "filter": partial(ours.run, "kafkalog", subscribed, path=path, **filtering),
            "kafka": partial(
                theirs.run, "kafka", {**subscribed, "kafka.bootstrap.servers": kafka.bootstrap}, **filtering
            ),
        }
        seconds = in_turn(runs, rounds=rounds)
    report.add(
        "forensics",
        f"where.key in {topic.records / 1e6:g} M x {topic.value_size} B, {topic.codec}",
        seconds=round(sorted(seconds["search"])[rounds // 2], 3),
        x_filtering=round(ratio(seconds["filter"], seconds["search"]), 2),
        x_kafka=round(ratio(seconds["kafka"], seconds["search"]), 2),
        bars="4 and 10",
    )


if __name__ == "__main__":
    main(Report())
