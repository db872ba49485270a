"""Seconds until a started broker serves, in a new directory and with 100 partitions, and its memory when idle."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker_clients import Clients, produce
from benchmarks.broker_sides import Side, new_topic, resident_mb, sides
from benchmarks.report import Report, in_turn, ratio

PARTITIONS = 100
RECORDS = 200_000  # of 100 B, in all partitions together


def started(side: Side) -> float:
    """Start a stopped broker and stop it again. Return the seconds until it serves."""
    begin = time.perf_counter()
    side.start()
    seconds = time.perf_counter() - begin
    side.stop()
    return seconds


def started_in_new_directory(home: Path, numbers: Iterator[int]) -> float:
    """Start a broker in a new directory and stop it again. Return the seconds until it serves."""
    return started(sides(home / str(next(numbers)))["kafkalog"])


def main(report: Report, rounds: int = 3) -> None:
    """Report the starts and the memory."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, Clients(1) as clients:
        brokers = sides(Path(home))
        for side in brokers.values():
            side.start()  # formats Kafka's directory, which is not part of a start
            side.stop()
        new = {
            "kafkalog": partial(started_in_new_directory, Path(home), itertools.count(1)),
            "kafka": partial(started, brokers["kafka"]),
        }
        add_starts(report, "start, a new directory", in_turn(new, rounds=rounds, warmups=0))
        idle = {}
        for name, side in brokers.items():
            side.start()
            time.sleep(2)  # until the deferred work of the start is done
            idle[name] = resident_mb(side.pid)
            one = {"bootstrap": side.bootstrap, "topic": new_topic(side, PARTITIONS), "records": RECORDS}
            clients.run(produce, [{**one, "size": 100, "codec": "none"}])
            side.stop()
        again = {name: partial(started, side) for name, side in brokers.items()}
        add_starts(
            report, f"start, {PARTITIONS} partitions after a clean stop", in_turn(again, rounds=rounds, warmups=0)
        )
        report.add(
            "broker", "resident memory, idle", kafkalog_MB=idle["kafkalog"], bar="<= 150", kafka_MB=idle["kafka"]
        )


def add_starts(report: Report, what: str, seconds: dict[str, list[float]]) -> None:
    """Report the seconds of one kind of start."""
    report.add(
        "broker",
        what,
        kafkalog_seconds=round(statistics.median(seconds["kafkalog"]), 3),
        bar="< 1",
        kafka_seconds=round(statistics.median(seconds["kafka"]), 2),
        x_apache_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 1),
    )


if __name__ == "__main__":
    main(Report())
