"""Streams: a backlog in limited batches, latency of single records, a sustained rate, and many idle partitions.

Backlog and latency are compared with Spark's connector and Apache Kafka, which serves the same files; the latency also
with a trivial source.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data import SMALL_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SOCKETS, SparkSession
from benchmarks.topics import PARTITIONS, home
from kafkalog_broker.testing import running_broker
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import RateLimits
from kafkalog_spark.source.stream_planner import StreamPlanner
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka
from tests.source.helpers.made_logs import append

CAP = 1_000_000  # offsets in a batch
EVERY_SECONDS = 0.05  # between two records whose latency is measured
SEEN = 240  # records of a latency run
COLD = 80  # records at the beginning of a latency run that are not measured
SUSTAINED, DURING = 300_000, 20  # records per second, seconds
IDLE = 1_000  # partitions


def main(report: Report, rounds: int = 3) -> None:
    idle(report)
    connector = Connector.install()
    ensure([SMALL_VALUES["none"]])
    with SparkSession() as ours:
        with RealKafka(home()) as kafka, SparkSession(connector.conf, connector.python) as theirs:
            backlog(report, ours, theirs, kafka, "default settings", rounds)
            latency(report, ours, theirs, kafka, rounds)
            with SparkSession(SOCKETS) as sockets:
                backlog(report, sockets, theirs, kafka, "Unix domain sockets", rounds)
        sustained(report, ours)


def backlog(
    report: Report, ours: SparkSession, theirs: SparkSession, kafka: RealKafka, settings: str, rounds: int
) -> None:
    """Report Trigger.AvailableNow over a whole topic to noop, compared with the connector and with rows from memory."""
    topic = SMALL_VALUES["none"]
    options = {"subscribe": topic.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": CAP}

    def run(session: SparkSession, format: str, more: dict[str, object], **request: Any) -> float:
        with tempfile.TemporaryDirectory() as checkpoint:
            request |= {"action": "stream", "checkpoint": checkpoint, "expect": topic.records}
            return session.run(format, {**options, **more}, **request)

    ceiling: dict[str, object] = {"rows": topic.records // PARTITIONS, "value_size": topic.value_size}
    seconds = in_turn(
        {
            "kafkalog": partial(run, ours, "kafkalog", {}, path=str(kafka.data_dir)),
            "kafka": partial(run, theirs, "kafka", {"kafka.bootstrap.servers": kafka.bootstrap}),
            "ceiling": partial(run, ours, "ceiling", ceiling, register="benchmarks.sources:Ceiling"),
        },
        rounds=rounds,
        warmups=1,
    )
    report.add(
        "streaming",
        f"AvailableNow, {topic.records / 1e6:g} M x {topic.value_size} B, maxOffsetsPerTrigger {CAP}, {settings}",
        kafkalog_s=round(statistics.median(seconds["kafkalog"]), 2),
        kafka_s=round(statistics.median(seconds["kafka"]), 2),
        kafkalog_M_rows_per_s=rate(topic.records / 1e6, seconds["kafkalog"]),
        x_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 2),
        ceiling_s=round(statistics.median(seconds["ceiling"]), 2),
        x_ceiling=round(ratio(seconds["ceiling"], seconds["kafkalog"]), 2),
    )


def latency(report: Report, ours: SparkSession, theirs: SparkSession, kafka: RealKafka, rounds: int) -> None:
    """Report the time from a record's timestamp to foreachBatch, with a record every 50 ms and a trigger of 0 s."""
    topic = f"latency-{time.time_ns()}"
    kafka.create_topic(topic, 1)
    options = {"subscribe": topic}
    kafka_options: dict[str, object] = {**options, "kafka.bootstrap.servers": kafka.bootstrap}
    latencies: dict[str, list[float]] = {"kafkalog": [], "kafka": [], "nothing": []}
    with Pacer(kafka.bootstrap, topic, partitions=1, batch=1, every_seconds=EVERY_SECONDS, value_size=20):
        for number in range(rounds + 1):
            for name in latencies:
                with tempfile.TemporaryDirectory() as checkpoint:
                    request: dict[str, Any] = {"checkpoint": checkpoint, "records": SEEN}
                    if name == "kafkalog":
                        seen = ours.latencies("kafkalog", options, path=str(kafka.data_dir), **request)
                    elif name == "kafka":
                        seen = theirs.latencies("kafka", kafka_options, **request)
                    else:
                        seen = ours.latencies("nothing", register="benchmarks.sources:Nothing", **request)
                if number > 0:  # the first round is a warm-up
                    latencies[name] += seen[COLD:]
    percentiles = {name: statistics.quantiles(seen, n=100) for name, seen in latencies.items()}
    figures = {f"{name}_p{p}_ms": round(quantiles[p - 1]) for name, quantiles in percentiles.items() for p in (50, 99)}
    report.add("streaming", "latency at 20 records/s, trigger 0 s", **figures)


def sustained(report: Report, ours: SparkSession) -> None:
    """Report a query that reads while a producer sends at a fixed rate to a broker on the same machine.

    The records of a batch arrived during the previous batch, so their number is the lag.
    """
    with running_broker(topics={"sustained": PARTITIONS}) as broker:
        pace = SUSTAINED // 100
        with Pacer(broker.bootstrap, "sustained", PARTITIONS, batch=pace, every_seconds=0.01, value_size=100) as pacer:
            time.sleep(2)
            begin, before = time.monotonic(), pacer.acknowledged
            with tempfile.TemporaryDirectory() as checkpoint:
                request = {"path": str(broker.log_dir), "checkpoint": checkpoint, "during": DURING}
                batches = ours.follow("kafkalog", {"subscribe": "sustained"}, **request)
            sent = (pacer.acknowledged - before) / (time.monotonic() - begin)
    rows = [count for _, count, _ in batches]
    third = len(rows) // 3
    report.add(
        "streaming",
        f"sustained, {SUSTAINED // 1000} k records/s of 100 B wanted, {DURING} s",
        acknowledged_k_per_s=round(sent / 1e3),
        batches=len(rows),
        lag_first_third_k=round(statistics.mean(rows[:third]) / 1e3),
        lag_last_third_k=round(statistics.mean(rows[-third:]) / 1e3),
        lag_largest_k=round(max(rows) / 1e3),
        batch_median_ms=round(statistics.median(took for *_, took in batches)),
    )


def idle(report: Report, rounds: int = 30) -> None:
    """Report the cost of a trigger in this process if no partition has new records."""
    with tempfile.TemporaryDirectory() as directory:
        for partition in range(IDLE):
            append(Path(directory), "t", partition, ["x"] * 10)
        planner = StreamPlanner(
            parse_read_options({"path": directory, "allTopics": "true", "startingOffsets": "earliest"}, streaming=True)
        )
        end = planner.next_end(planner.initial(), RateLimits())
        took = []
        for _ in range(rounds):
            time.sleep(0.05)
            begin = time.perf_counter()
            assert planner.next_end(end, RateLimits()) == end
            took.append(time.perf_counter() - begin)
    report.add(
        "streaming",
        f"a trigger of {IDLE} partitions without news",
        median_ms=round(statistics.median(took) * 1e3, 1),
        largest_ms=round(max(took) * 1e3, 1),
    )


class Pacer(threading.Thread):
    """Thread that sends `batch` records every `every_seconds`, until the block ends."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, batch: int, every_seconds: float, value_size: int
    ) -> None:
        from confluent_kafka import Producer

        super().__init__(daemon=True)
        self.acknowledged = 0
        self._topic, self._partitions, self._every = topic, partitions, every_seconds
        self._messages = [{"value": b"x" * value_size}] * batch
        self._stop_now = threading.Event()
        linger = {"linger.ms": 0} if batch == 1 else {"linger.ms": 5, "batch.size": 262_144}
        queue = {"queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **queue, **linger})

    def run(self) -> None:
        sent, begin = 0, time.monotonic()
        while not self._stop_now.wait(max(begin + sent * self._every - time.monotonic(), 0)):
            self._producer.produce_batch(self._topic, self._messages, partition=sent % self._partitions)
            self._producer.poll(0)
            sent += 1
            self.acknowledged = sent * len(self._messages) - len(self._producer)

    def __enter__(self) -> Pacer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join(30)
        self._producer.flush(30)


if __name__ == "__main__":
    main(Report())
