"""Planning of a read of more than 1,000 segments, compared with listing and stat of the same files.

In this process, for the whole topic and for its last 1 % by offset and by timestamp. Then the last 1 % as a query in
Spark, compared with a trivial source.
"""

from __future__ import annotations

import json
import os
import statistics
from functools import partial
from pathlib import Path

from benchmarks.data import SEGMENTS, ensure
from benchmarks.decode import timed
from benchmarks.report import Report, in_turn, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import PARTITIONS
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.row_filter import RowFilter


def list_and_stat(directories: list[Path]) -> int:
    """Get the names and sizes of the .log files, the minimum for planning. Return the number of segments."""
    sizes = [
        entry.stat().st_size
        for directory in directories
        for entry in os.scandir(directory)
        if entry.name.endswith(".log")
    ]
    return len(sizes)


def main(report: Report, rounds: int = 15) -> None:
    """Measure in this process first, then in Spark."""
    path = ensure([SEGMENTS])
    directories = [path / f"{SEGMENTS.name}-{n}" for n in range(PARTITIONS)]
    first = SEGMENTS.records // PARTITIONS * 99 // 100
    offsets = json.dumps({SEGMENTS.name: {str(n): first for n in range(PARTITIONS)}})
    ways: dict[str, dict[str, str]] = {
        "everything": {},
        "last 1 % by startingOffsets": {"startingOffsets": offsets},
        "last 1 % by startingTimestamp": {"startingTimestamp": str(SEGMENTS.timestamp_at(0.99))},
    }
    for options in ways.values():
        options |= {"subscribe": SEGMENTS.name, "path": str(path)}
    runs = {name: partial(timed, partial(plan, parse_read_options(way), RowFilter())) for name, way in ways.items()}
    seconds = in_turn({"stat": partial(timed, partial(list_and_stat, directories)), **runs}, rounds=rounds)
    segments = list_and_stat(directories)
    for name, way in ways.items():
        report.add(
            "planning",
            f"{segments} segments, {name}",
            ms=round(1000 * statistics.median(seconds[name]), 1),
            list_and_stat_ms=round(1000 * statistics.median(seconds["stat"]), 1),
            x_list_and_stat=round(ratio(seconds[name], seconds["stat"]), 1),
            tasks=len(plan(parse_read_options(way), RowFilter())),
        )
    with SparkSession() as spark:
        options = {key: value for key, value in ways["last 1 % by startingOffsets"].items() if key != "path"}
        queries = {
            "kafkalog": partial(
                spark.run, "kafkalog", options, path=str(path), action="count", expect=SEGMENTS.records // 100
            ),
            "nothing": partial(spark.run, "nothing", register="benchmarks.sources:Nothing", action="count"),
        }
        spark_seconds = in_turn(queries, rounds=rounds, warmups=5)
    report.add(
        "planning",
        f"{segments} segments, count() of the last 1 % by startingOffsets in Spark",
        kafkalog_seconds=round(statistics.median(spark_seconds["kafkalog"]), 3),
        nothing_seconds=round(statistics.median(spark_seconds["nothing"]), 3),
        x_time_of_nothing=round(ratio(spark_seconds["kafkalog"], spark_seconds["nothing"]), 2),
    )


if __name__ == "__main__":
    main(Report())
