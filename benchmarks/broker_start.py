"""How long a broker takes to serve, in a new directory and with 100 partitions; the memory it is idle with."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker_clients import Clients, produce
from benchmarks.broker_sides import Side, new_topic, resident_mb, sides
from benchmarks.report import Report, in_turn, ratio

PARTITIONS = 100
RECORDS = 200_000  # of 100 B, in all partitions together


def started(side: Side) -> float:
    """Seconds until a stopped broker serves; it is stopped again then."""
    begin = time.perf_counter()
    side.start()
    seconds = time.perf_counter() - begin
    side.stop()
    return seconds


def started_anew(home: Path, count: list[int]) -> float:
    """Seconds until a broker serves in a directory that is not there yet."""
    count.append(1)
    return started(sides(home / str(len(count)))["kafkalog"])


def main(report: Report, rounds: int = 3) -> None:
    """Two lines for starts, one for memory."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, Clients(1) as clients:
        brokers = sides(Path(home))
        for side in brokers.values():
            side.start()  # Kafka formats its directory now, which is no part of its start
            side.stop()
        count: list[int] = []
        new = {"kafkalog": partial(started_anew, Path(home), count), "kafka": partial(started, brokers["kafka"])}
        tell(report, "start, a new directory", in_turn(new, rounds=rounds, warmups=0))
        idle = {}
        for name, side in brokers.items():
            side.start()
            time.sleep(2)  # what a start leaves to do afterwards is done, as far as memory goes
            idle[name] = resident_mb(side.pid)
            one = {"bootstrap": side.bootstrap, "topic": new_topic(side, PARTITIONS), "records": RECORDS}
            clients.run(produce, [{**one, "size": 100, "codec": "none"}])
            side.stop()
        again = {name: partial(started, side) for name, side in brokers.items()}
        tell(report, f"start, {PARTITIONS} partitions after a clean stop", in_turn(again, rounds=rounds, warmups=0))
        report.add(
            "broker", "resident memory, idle", kafkalog_MB=idle["kafkalog"], bar="<= 150", kafka_MB=idle["kafka"]
        )


def tell(report: Report, what: str, seconds: dict[str, list[float]]) -> None:
    """One line."""
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
