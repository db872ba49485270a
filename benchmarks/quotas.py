"""producer_byte_rate at work: what a client with a quota gets in 20 s, and what another, without, loses alongside it.

Each client is a process of its own. The fast one sends all the time: a span alone, one alongside the other, and so on;
each span alongside is compared with those before and after it. A quota lets a client that was idle spend ten seconds'
worth at once, so before each span alongside it has been at work for two windows. A real Kafka with the same quota and
the same clients is measured after ours.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ctypes import c_int64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_metrics import cpu_s
from benchmarks.broker_sides import PROPERTIES, Side, new_topic
from benchmarks.report import Report
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask
from tests.interop.real_kafka import RealKafka
from tests.interop.test_quotas import connected

RATE = 1 << 20
SPAN_S = 20.0
SIZE = 1000
NAMED = "slow"


KEPT = {
    # A minute at full speed is 20 GB: what was taken goes soon, so that no disk is measured.
    **PROPERTIES,
    "log.segment.bytes": 64 << 20,
    "log.retention.bytes": 64 << 20,
    "log.retention.check.interval.ms": 1000,
}


def send(bootstrap: str, topic: str, client_id: str, taken: Any, stop: Any) -> None:
    """A client process: sends as fast as the broker takes it. taken: what was acknowledged so far, in bytes of
    values."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 5, "batch.size": 64 << 10,
            "queue.buffering.max.messages": 5000, "log_level": 0, "message.timeout.ms": 300_000,
        }
    )  # fmt: skip
    value = b"v" * SIZE

    def delivered(error: object, message: object) -> None:
        taken.value += 0 if error else SIZE

    while not stop.is_set():
        for _ in range(100):
            try:
                producer.produce(topic, value, on_delivery=delivered)
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.purge()


@contextmanager
def sender(bootstrap: str, topic: str, client_id: str) -> Iterator[Any]:
    """Its `taken`."""
    context = multiprocessing.get_context("spawn")
    taken, stop = context.Value(c_int64, 0, lock=False), context.Event()
    process = context.Process(target=send, args=(bootstrap, topic, client_id, taken, stop), daemon=True)
    process.start()
    try:
        yield taken
    finally:
        stop.set()
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


def limit(side: Side) -> None:
    from kio.schema.alter_client_quotas.v1 import request as alter
    from kio.static.primitive import f64

    entity = (alter.EntityData(entity_type="client-id", entity_name=NAMED),)
    ops = (alter.OpData(key="producer_byte_rate", value=f64(float(RATE)), remove=False),)
    request = alter.AlterClientQuotasRequest(entries=(alter.EntryData(entity=entity, ops=ops),), validate_only=False)
    with connected(side) as connection:
        assert all(not entry.error_code for entry in ask(connection, request).entries)


class Span:
    """Bytes a second that were taken of each client in SPAN_S, and the broker's processor time for a MB of all, which
    other work on the machine hardly changes."""

    def __init__(self, side: Side, **taken: Any) -> None:
        before, began, used = {name: one.value for name, one in taken.items()}, time.monotonic(), cpu_s(side.pid)
        time.sleep(SPAN_S)
        seconds = time.monotonic() - began
        self.rates = {name: (one.value - before[name]) / seconds for name, one in taken.items()}
        taken_mb = sum(one.value - before[name] for name, one in taken.items()) / 1e6
        self.cpu_ms_per_mb = round(1e3 * (cpu_s(side.pid) - used) / taken_mb, 2)


def line(report: Report, name: str, side: Side, rounds: int) -> None:
    limit(side)
    topic = new_topic(side, 4)
    with sender(side.bootstrap, topic, "fast") as fast:
        time.sleep(5)
        alone, both = [Span(side, fast=fast)], []
        for _ in range(rounds):
            with sender(side.bootstrap, topic, NAMED) as slow:
                time.sleep(SPAN_S + 2)  # two windows
                both.append(Span(side, fast=fast, slow=slow))
            alone.append(Span(side, fast=fast))
    lost = [
        1 - span.rates["fast"] / statistics.mean((before.rates["fast"], after.rates["fast"]))
        for before, span, after in zip(alone, both, alone[1:], strict=False)
    ]
    report.add(
        "quotas",
        f"{name}: a client with 1 MB/s alongside one without",
        x_of_its_quota=[round(span.rates["slow"] / RATE, 3) for span in both],
        bar_of_quota="0.9 to 1.1",
        fast_alone_MB_per_s=[round(span.rates["fast"] / 1e6, 1) for span in alone],
        fast_alongside_it_MB_per_s=[round(span.rates["fast"] / 1e6, 1) for span in both],
        lost_percent=[round(100 * share, 1) for share in lost],
        bar_lost="< 5",
        broker_cpu_ms_per_MB_alone=[span.cpu_ms_per_mb for span in alone],
        broker_cpu_ms_per_MB_alongside=[span.cpu_ms_per_mb for span in both],
    )


def main(report: Report, names: tuple[str, ...] = ("kafkalog", "kafka"), rounds: int = 2) -> None:
    """`python -m benchmarks.quotas kafkalog`: without a real Kafka."""
    made: Mapping[str, Any] = {"kafkalog": RunningBroker, "kafka": RealKafka}
    for name in names:
        with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack:
            line(report, name, stack.enter_context(made[name](Path(home, name), KEPT)), rounds)


if __name__ == "__main__":
    main(Report(), tuple(sys.argv[1:]) or ("kafkalog", "kafka"))
