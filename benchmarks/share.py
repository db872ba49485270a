"""Share groups (KIP-932): records per second of Java's share consumers with this broker and with Apache Kafka.

python -m benchmarks.run share
"""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report import Report, in_turn, rate, ratio

if TYPE_CHECKING:
    from tests.interop.share_workers import ShareWorker

TOPIC, PARTITIONS = "shared", 4
VALUE_BYTES = 100
RECORDS = 1_000_000
_GROUPS = count()
_TIMEOUT_S = 180.0


def main(report: Report, rounds: int = 3) -> None:
    """Report the rates of one member, and of four."""
    from kafkalog_broker.testing import running_broker
    from tests.interop.real_kafka import RealKafka
    from tests.interop.share_workers import compiled

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        classes = compiled(directory / "classes")
        kafka = stack.enter_context(RealKafka(directory / "kafka"))
        kafka.create_topic(TOPIC, PARTITIONS)
        ours = stack.enter_context(running_broker(topics={TOPIC: PARTITIONS}))
        for bootstrap in (kafka.bootstrap, ours.bootstrap):
            _produce(bootstrap)
        for members in (1, 4):
            seconds = in_turn(
                {
                    "kafkalog": partial(_consume, classes, ours.bootstrap, members),
                    "kafka": partial(_consume, classes, kafka.bootstrap, members),
                },
                rounds=rounds,
                warmups=1,
            )
            report.add(
                "share",
                f"{VALUE_BYTES} B values, {PARTITIONS} partitions, {members} members",
                kafkalog_records_s=rate(RECORDS, seconds["kafkalog"]),
                kafka_records_s=rate(RECORDS, seconds["kafka"]),
                x_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 2),
            )


def _produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 10_000})
    value = bytes(VALUE_BYTES)
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _consume(classes: Path, bootstrap: str, members: int) -> float:
    """Consume the topic with a new group. Return the seconds from the first record to the last."""
    from tests.broker.share.helpers.share_script import earliest
    from tests.interop.share_workers import ShareWorker

    group = f"benchmark-{next(_GROUPS)}"
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        earliest(connection, group)
    workers = [
        ShareWorker(classes, bootstrap, group, TOPIC, "count", "max.poll.records=2000", java=()) for _ in range(members)
    ]
    try:
        end = time.monotonic() + _TIMEOUT_S
        while sum(_latest_count(worker) for worker in workers) < RECORDS:
            if time.monotonic() > end:
                raise RuntimeError(f"{[worker.lines[-1:] for worker in workers]} after {_TIMEOUT_S} s")
            time.sleep(0.05)
        # The first count is printed after the first poll, so the measurement begins one poll late.
        begin = min(count.time_ns for worker in workers for count in _counts(worker) if count.records)
        return (max(_last_change_ns(worker) for worker in workers) - begin) / 1e9
    finally:
        for worker in workers:
            worker.kill()


class _Count(NamedTuple):
    """Line of a worker: the number of records that it has consumed so far."""

    time_ns: int
    records: int


def _latest_count(worker: ShareWorker) -> int:
    line = worker.lines[-1] if worker.lines else ""
    return _parsed(line).records if line.startswith("C ") else 0


def _counts(worker: ShareWorker) -> list[_Count]:
    return [_parsed(line) for line in list(worker.lines) if line.startswith("C ")]


def _parsed(line: str) -> _Count:
    _, time_ns, records = line.split()[:3]
    return _Count(int(time_ns), int(records))


def _last_change_ns(worker: ShareWorker) -> int:
    """Return the time at which the worker had consumed all its records."""
    counts = _counts(worker)
    return next(count.time_ns for count in counts if count.records == counts[-1].records)
