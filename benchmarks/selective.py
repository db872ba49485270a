"""Reads of the last 1 % of a topic of 2 GB, by startingTimestamp and by startingOffsets.

The topics have 18 M records of 100 B and 2 M records of 1 kB. The reads are compared with a full scan in the same
session, and with format("kafka") and the same option. The bytes read are the pages of segment files that the first such
query of a new session loads into memory.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from benchmarks.data import LARGE_VALUES, LONG, ensure
from benchmarks.page_cache import evict, resident_bytes
from benchmarks.report import Report, in_turn, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import PARTITIONS, Topic, home
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

SKIPPED_FRACTION = 0.99


def ways(topic: Topic) -> dict[str, dict[str, Any]]:
    """Return the arguments of the queries by name. Each query returns the last 1 % of the records."""
    timestamp = topic.timestamp_at(SKIPPED_FRACTION)
    first = topic.records // PARTITIONS * 99 // 100
    offsets = {topic.name: {str(partition): first for partition in range(PARTITIONS)}}
    return {
        "startingTimestamp": {"options": {"startingTimestamp": timestamp}},
        "startingOffsets": {"options": {"startingOffsets": json.dumps(offsets)}},
    }


def main(report: Report, rounds: int = 5) -> None:
    """Report each topic and each option."""
    for topic in (LONG, LARGE_VALUES["none"]):
        measure(report, topic, rounds)


def measure(report: Report, topic: Topic, rounds: int) -> None:
    """Report each option for one topic."""
    path = ensure([topic])
    files = [file for n in range(PARTITIONS) for file in sorted((path / f"{topic.name}-{n}").glob("*.log"))]
    size = sum(file.stat().st_size for file in files)
    wanted = topic.records // 100
    queries = ways(topic)
    for query in queries.values():
        query["options"]["subscribe"] = topic.name
    bytes_read = {name: cold_bytes(name, query, str(path), files, wanted) for name, query in queries.items()}

    connector = Connector.install()
    with (
        RealKafka(home()) as kafka,
        SparkSession(connector.conf, connector.python) as theirs,
        SparkSession() as ours,
    ):
        runs = {"full": partial(ours.run, "kafkalog", {"subscribe": topic.name}, path=str(path))}
        for name, query in queries.items():
            runs[name] = partial(ours.run, "kafkalog", path=str(path), **query)
            options = {**query["options"], "kafka.bootstrap.servers": kafka.bootstrap}
            runs[f"kafka {name}"] = partial(theirs.run, "kafka", options)
        seconds = in_turn(runs, rounds=rounds)
    for name in queries:
        figures: dict[str, Any] = {
            "seconds": round(sorted(seconds[name])[rounds // 2], 3),
            "full_scan_seconds": round(sorted(seconds["full"])[rounds // 2], 3),
            "x_full_scan": round(ratio(seconds["full"], seconds[name]), 1),
            "bytes_read_percent": round(100 * bytes_read[name] / size, 2),
        }
        figures["x_kafka"] = round(ratio(seconds[f"kafka {name}"], seconds[name]), 2)
        report.add("selective", f"last 1 % of {size / 1e9:.2f} GB of {topic.value_size} B by {name}", **figures)


def cold_bytes(name: str, query: dict[str, Any], path: str, files: list[Any], wanted: int) -> int:
    """Return the bytes that the first query of a new session loads into memory."""
    with SparkSession() as session:
        session.run("nothing", register="benchmarks.sources:Nothing")
        evict(files)
        before = resident_bytes(files)
        session.run("kafkalog", path=path, action="count", expect=wanted, **query)
        return resident_bytes(files) - before


if __name__ == "__main__":
    main(Report())
