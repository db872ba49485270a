"""Effect of producer_byte_rate on a client with a quota (`slow`), and on a second client without one (`fast`).

Each client is a process. The fast client sends all the time; spans of 20 s without the slow client alternate with spans
with it, and each of the latter is compared with the spans before and after it. An idle client may send a burst of ten
seconds, so the slow client sends for two quota windows before a span begins. Apache Kafka is measured afterwards with
the same quota and the same clients.
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
SLOW = "slow"
"""Client ID of the client with a quota."""

RETENTION = {
    # A minute at full speed is 20 GB. Records are deleted early, so that the disk is not measured.
    **PROPERTIES,
    "log.segment.bytes": 64 << 20,
    "log.retention.bytes": 64 << 20,
    "log.retention.check.interval.ms": 1000,
}


def send(bootstrap: str, topic: str, client_id: str, acknowledged: Any, stop: Any) -> None:
    """Send as fast as possible, in a process of its own, until `stop` is set.

    Args:
        acknowledged: Shared counter of acknowledged bytes of values.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 5, "batch.size": 64 << 10,
            "queue.buffering.max.messages": 5000, "log_level": 0, "message.timeout.ms": 300_000,
        }
    )  # fmt: skip
    value = b"v" * SIZE

    def delivered(error: object, message: object) -> None:
        acknowledged.value += 0 if error else SIZE

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
    """Run a client process during the block. Yield its counter of acknowledged bytes."""
    context = multiprocessing.get_context("spawn")
    acknowledged, stop = context.Value(c_int64, 0, lock=False), context.Event()
    process = context.Process(target=send, args=(bootstrap, topic, client_id, acknowledged, stop), daemon=True)
    process.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


def set_quota(side: Side) -> None:
    """Limit the client SLOW to RATE bytes per second."""
    from kio.schema.alter_client_quotas.v1 import request as alter
    from kio.static.primitive import f64

    entity = (alter.EntityData(entity_type="client-id", entity_name=SLOW),)
    ops = (alter.OpData(key="producer_byte_rate", value=f64(float(RATE)), remove=False),)
    request = alter.AlterClientQuotasRequest(entries=(alter.EntryData(entity=entity, ops=ops),), validate_only=False)
    with connected(side) as connection:
        assert all(not entry.error_code for entry in ask(connection, request).entries)


class Span:
    """Measurement of SPAN_S seconds.

    Attributes:
        rates: Acknowledged bytes per second of each client.
        cpu_ms_per_mb: Processor time of the broker for a MB of all clients, which other work hardly affects.
    """

    def __init__(self, side: Side, **counters: Any) -> None:
        before = {name: counter.value for name, counter in counters.items()}
        began, cpu_before = time.monotonic(), cpu_s(side.pid)
        time.sleep(SPAN_S)
        seconds = time.monotonic() - began
        sizes = {name: counter.value - before[name] for name, counter in counters.items()}
        self.rates = {name: size / seconds for name, size in sizes.items()}
        self.cpu_ms_per_mb = round(1e3 * (cpu_s(side.pid) - cpu_before) / (sum(sizes.values()) / 1e6), 2)


def measure(report: Report, name: str, side: Side, rounds: int) -> None:
    """Report both clients on one broker."""
    set_quota(side)
    topic = new_topic(side, 4)
    with sender(side.bootstrap, topic, "fast") as fast:
        time.sleep(5)
        alone, both = [Span(side, fast=fast)], []
        for _ in range(rounds):
            with sender(side.bootstrap, topic, SLOW) as slow:
                time.sleep(SPAN_S + 2)  # two quota windows
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
    """Measure the named brokers. `python -m benchmarks.quotas kafkalog` does not need Apache Kafka."""
    brokers: Mapping[str, Any] = {"kafkalog": RunningBroker, "kafka": RealKafka}
    for name in names:
        with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack:
            measure(report, name, stack.enter_context(brokers[name](Path(home, name), RETENTION)), rounds)


if __name__ == "__main__":
    main(Report(), tuple(sys.argv[1:]) or ("kafkalog", "kafka"))
