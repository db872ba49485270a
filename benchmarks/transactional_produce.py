"""Transactional producers that commit every 100 ms, with this broker and with Apache Kafka in turn.

python -m benchmarks.run transactional_produce
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial

from benchmarks.report import Report, in_turn, rate, ratio

TOPIC, PARTITIONS = "transactional", 4
VALUE_BYTES = 100
COMMIT_S = 0.1
RECORDS = 400_000
"""Records of each producer in a run, which has several dozen transactions."""


def main(report: Report, rounds: int = 5) -> None:
    """Report the rates of one producer, and of four."""
    from kafkalog_broker.testing import running_broker
    from tests.interop.real_kafka import RealKafka

    with ExitStack() as stack:
        kafka = stack.enter_context(RealKafka(stack.enter_context(tempfile.TemporaryDirectory())))
        kafka.create_topic(TOPIC, PARTITIONS)
        ours = stack.enter_context(running_broker(topics={TOPIC: PARTITIONS}))
        for producers in (1, 4):
            seconds = in_turn(
                {
                    "kafkalog": partial(_produce, ours.bootstrap, producers),
                    "kafka": partial(_produce, kafka.bootstrap, producers),
                },
                rounds=rounds,
                warmups=1,
            )
            report.add(
                "transactional_produce",
                f"{VALUE_BYTES} B values, a commit each {COMMIT_S * 1000:.0f} ms, {producers} producers",
                kafkalog_records_s=rate(producers * RECORDS, seconds["kafkalog"]),
                kafka_records_s=rate(producers * RECORDS, seconds["kafka"]),
                x_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 2),
            )


def _produce(bootstrap: str, producers: int) -> float:
    """Run producers in child processes. Return the seconds from the first transaction to the last commit."""
    command = [sys.executable, "-m", "benchmarks.transactional_produce", bootstrap]
    children = [
        subprocess.Popen([*command, f"benchmark-{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(producers)
    ]
    for child in children:
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            raise RuntimeError("a producer did not begin")
    begin = time.perf_counter()
    for child in children:
        child.communicate(b"go\n")
        if child.returncode:
            raise RuntimeError(f"a producer ended with {child.returncode}")
    return time.perf_counter() - begin


def _child(bootstrap: str, transactional_id: str) -> None:
    """Produce in a child process, after a line on stdin."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )  # fmt: skip
    producer.init_transactions(60)
    value = bytes(VALUE_BYTES)
    print("ready", flush=True)
    sys.stdin.readline()
    left = RECORDS
    while left:
        producer.begin_transaction()
        end = time.perf_counter() + COMMIT_S
        while left and time.perf_counter() < end:
            count = min(left, 500)
            for _ in range(count):
                producer.produce(TOPIC, value)
            producer.poll(0)
            left -= count
        producer.commit_transaction(60)


if __name__ == "__main__":
    _child(*sys.argv[1:])
