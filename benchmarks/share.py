"""Share groups (KIP-932): records a second that Java's share consumers process, our broker against Apache Kafka.

python -m benchmarks.run share
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report, in_turn, rate, ratio

if TYPE_CHECKING:
    from tests.interop.share_workers import ShareWorker

TOPIC, PARTITIONS = "shared", 4
VALUE_BYTES = 100
RECORDS = 1_000_000
_GROUPS = count()
_LIMIT_S = 180.0


def main(report: Report, rounds: int = 3) -> None:
    """Records a second of one member, and of four."""
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
    """Seconds from the first record to the last, of a group of its own."""
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
        end = time.monotonic() + _LIMIT_S
        while sum(_counted(worker) for worker in workers) < RECORDS:
            if time.monotonic() > end:
                raise RuntimeError(f"{[worker.lines[-1:] for worker in workers]} after {_LIMIT_S} s")
            time.sleep(0.05)
        times = [(int(at), int(counted)) for worker in workers for at, counted in _lines(worker)]
        begin = min(at for at, counted in times if counted)
        # The first line with a count says when its records had come, so it is a poll later than the beginning.
        return (max(at for at, _ in _moved(workers)) - begin) / 1e9
    finally:
        for worker in workers:
            worker.kill()


def _lines(worker: ShareWorker) -> list[tuple[str, str]]:
    return [(line.split()[1], line.split()[2]) for line in list(worker.lines) if line.startswith("C ")]


def _moved(workers: Sequence[ShareWorker]) -> list[tuple[int, int]]:
    """When each member's count became what it was at the end."""
    found = []
    for worker in workers:
        lines = _lines(worker)
        final = lines[-1][1] if lines else "0"
        found.append(next((int(at), int(counted)) for at, counted in lines if counted == final))
    return found


def _counted(worker: ShareWorker) -> int:
    lines = _lines_last(worker)
    return int(lines.split()[2]) if lines else 0


def _lines_last(worker: ShareWorker) -> str:
    said = worker.lines
    return said[-1] if said and said[-1].startswith("C ") else ""
