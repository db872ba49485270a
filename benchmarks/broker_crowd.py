"""Load of a broker that also has 1,000 idle connections and 2,000 partitions."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks.broker_sides import Side, delete_topic, new_topic, resident_mb
from benchmarks.report import Report
from kafkalog_broker.net.open_files import raise_open_files_limit
from kafkalog_broker.testing_support.client_requests import ask

CONNECTIONS = 1_000
PARTITIONS = 2_000


@contextmanager
def idle_connections(bootstrap: str, count: int) -> Iterator[None]:
    """Open `count` connections, each with one ApiVersions request and no further ones, until the block ends."""
    from kio.schema.api_versions.v0 import request as schema

    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 30))
            ask(connection, schema.ApiVersionsRequest())
        yield


def main(report: Report, brokers: Mapping[str, Side], measure: Callable[[str], None]) -> None:
    """Report the time and memory of partitions and connections, then call `measure` while they exist.

    Args:
        measure: Measurement under this load. It receives the text to append to its names.
    """
    seconds, before = {}, {name: resident_mb(side.pid) for name, side in brokers.items()}
    topics = {}
    raise_open_files_limit()  # this process holds the connections to both brokers
    with ExitStack() as stack:
        for name, side in brokers.items():
            begin = time.perf_counter()
            topics[name] = new_topic(side, PARTITIONS)
            seconds[name] = time.perf_counter() - begin
            stack.enter_context(idle_connections(side.bootstrap, CONNECTIONS))
        report.add(
            "broker",
            f"{CONNECTIONS} idle connections, {PARTITIONS} partitions",
            kafkalog_create_s=round(seconds["kafkalog"], 2),
            kafka_create_s=round(seconds["kafka"], 2),
            **{f"{name}_more_MB": resident_mb(side.pid) - before[name] for name, side in brokers.items()},
        )
        measure(f", beside {CONNECTIONS} idle connections and {PARTITIONS} partitions")
    for name, side in brokers.items():
        delete_topic(side, topics[name])
