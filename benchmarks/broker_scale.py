"""Many topics and many connections: creation, start after a clean stop and after kill -9, and long polling.

    2,000 topics x 5 partitions, 100 topics per request   seconds of all requests, and of the slowest one
    1,000 connections with fetch.max.wait.ms 500          ms until the empty response, processor time per fetch
    start after kill -9 and after a clean stop            seconds until it serves, processor time per partition

This broker and Apache Kafka are measured one after the other; the argument `kafkalog` selects this broker only.
Processor time is user and system time of the broker's process, which depends little on other work on the machine.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_sides import sides
from benchmarks.report import Report
from kafkalog_broker.net.open_files import raise_open_files_limit

TOPICS, PARTITIONS, TOPICS_PER_REQUEST = 2_000, 5, 100
CONNECTIONS, WAIT_MS, SECONDS = 1_000, 500, 10
SETTLED_S = 2.0
"""Seconds that are not measured, because at first all connections send at the same time."""


def processor_seconds(pid: int | None) -> float:
    """Return the user and system time of a process in seconds. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def create(side: Any) -> tuple[float, float]:
    """Create all topics. Return the seconds of all requests, and of the slowest one."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 3})
    admin.list_topics(timeout=60)
    durations = []
    for first in range(0, TOPICS, TOPICS_PER_REQUEST):
        new = [NewTopic(f"topic-{number}", PARTITIONS, 1) for number in range(first, first + TOPICS_PER_REQUEST)]
        begin = time.perf_counter()
        for creation in admin.create_topics(new, request_timeout=60).values():
            creation.result(60)
        durations.append(time.perf_counter() - begin)
    return sum(durations), max(durations)


def started(side: Any) -> tuple[float, float]:
    """Start a broker. Return the seconds until it serves, and its processor time in seconds."""
    begin = time.perf_counter()
    side.start()
    return time.perf_counter() - begin, processor_seconds(side.pid)


def empty_fetch(topic: str, partition: int) -> bytes:
    """Return the frame of a Fetch request (version 4) from offset 0."""
    name = topic.encode()
    body = struct.pack(">hhih5s iiiib i h", 1, 4, 7, 5, b"bench", -1, WAIT_MS, 1, 50 << 20, 0, 1, len(name)) + name
    body += struct.pack(">i iqi", 1, partition, 0, 1 << 20)
    return struct.pack(">i", len(body)) + body


def waiting_fetches(bootstrap: str, topic: str) -> list[float]:
    """Fetch an empty partition on all connections, each request directly after the last response.

    Returns:
        Milliseconds from each request to its response.
    """
    host, _, port = bootstrap.rpartition(":")
    raise_open_files_limit()
    poll = select.epoll()
    connections: dict[int, tuple[socket.socket, bytes]] = {}
    sent_at: dict[int, float] = {}
    durations_ms: list[float] = []
    for number in range(CONNECTIONS):
        connection = socket.create_connection((host, int(port)), 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[connection.fileno()] = (connection, empty_fetch(topic, number % PARTITIONS))
        poll.register(connection, select.EPOLLIN)
    begin = time.perf_counter()
    for descriptor, (connection, frame) in connections.items():
        connection.sendall(frame)
        sent_at[descriptor] = time.perf_counter()
    while time.perf_counter() < begin + SECONDS:
        for descriptor, _ in poll.poll(1):
            connection, frame = connections[descriptor]
            response = connection.recv(4096)  # some 60 bytes in one packet
            if len(response) != 4 + int.from_bytes(response[:4], "big"):
                raise RuntimeError(f"{bootstrap} sent {response[:80]!r}, expected one empty Fetch response")
            now = time.perf_counter()
            if now > begin + SETTLED_S:
                durations_ms.append(1000 * (now - sent_at[descriptor]))
            connection.sendall(frame)
            sent_at[descriptor] = time.perf_counter()
    for connection, _ in connections.values():
        connection.close()
    return durations_ms


def main(report: Report, only: Sequence[str] = ()) -> None:
    """Report every measurement of each broker."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home:
        for name, side in sides(Path(home)).items():
            if only and name not in only:
                continue
            total, count = TOPICS * PARTITIONS, f"{TOPICS * PARTITIONS} partitions"
            side.start()
            before = processor_seconds(side.pid)
            seconds, slowest = create(side)
            spent = processor_seconds(side.pid) - before
            report.add(
                "broker_scale", f"{name}: create {count}, {TOPICS_PER_REQUEST * PARTITIONS} a request",
                seconds=round(seconds, 2), slowest_request_s=round(slowest, 3),
                processor_ms_a_partition=round(1000 * spent / total, 3),
            )  # fmt: skip
            before = processor_seconds(side.pid)
            ms = waiting_fetches(side.bootstrap, "topic-0")
            spent = (processor_seconds(side.pid) - before) * (1 - SETTLED_S / SECONDS)
            percentiles = statistics.quantiles(ms, n=100)
            report.add(
                "broker_scale", f"{name}: {CONNECTIONS} connections, fetches that wait {WAIT_MS} ms",
                p50_ms=round(percentiles[49]), p99_ms=round(percentiles[98]), max_ms=round(max(ms)),
                processor_us_a_fetch=round(1e6 * spent / len(ms)),
            )  # fmt: skip
            for how, end in (("kill -9", side.kill), ("a clean stop", side.stop)):
                end()
                seconds, spent = started(side)
                report.add(
                    "broker_scale", f"{name}: start after {how}, {count}",
                    seconds=round(seconds, 2), processor_seconds=round(spent, 2),
                    processor_ms_a_partition=round(1000 * spent / total, 3),
                )  # fmt: skip
            side.stop()


if __name__ == "__main__":
    main(Report(), sys.argv[1:])
