"""What a broker carries: 1,000 connections that say nothing and 2,000 partitions, while others produce and fetch."""

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
    """`count` connections that have asked for ApiVersions, as every client does, and then say nothing."""
    from kio.schema.api_versions.v0 import request as schema

    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 30))
            ask(connection, schema.ApiVersionsRequest())
        yield


def main(report: Report, brokers: Mapping[str, Side], measure: Callable[[str], None]) -> None:
    """One line of its own, and those of `measure`, called with a text to add to them, while all that is there."""
    seconds, before = {}, {name: resident_mb(side.pid) for name, side in brokers.items()}
    topics = {}
    raise_open_files_limit()  # the connections of both are held here
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
