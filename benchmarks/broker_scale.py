"""Many topics and many connections: creating, starting after a clean stop and after kill -9, fetches that wait.

    2,000 topics x 5 partitions, 100 topics a request   seconds in all, and of the slowest request
    a start after that, killed; and stopped             seconds until it serves, processor time a partition
    1,000 connections, fetches that wait 500 ms         ms until the empty answer, processor time a fetch

This broker and a real Kafka in turn, once each; with `kafkalog` as an argument it alone. Processor time is user and
system time of the broker's process, which says something on a busy machine too.
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

TOPICS, PARTITIONS, OF_A_REQUEST = 2_000, 5, 100
CONNECTIONS, WAIT_MS, SECONDS = 1_000, 500, 10
SETTLED_S = 2.0
"""What all connections ask at once, in the beginning, is not what they ask later."""


def processor_seconds(pid: int | None) -> float:
    """User and system time that a process has taken. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def create(side: Any) -> tuple[float, float]:
    """Seconds for all topics, and for the slowest request."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 3})
    admin.list_topics(timeout=60)
    taken = []
    for first in range(0, TOPICS, OF_A_REQUEST):
        new = [NewTopic(f"topic-{number}", PARTITIONS, 1) for number in range(first, first + OF_A_REQUEST)]
        begin = time.perf_counter()
        for made in admin.create_topics(new, request_timeout=60).values():
            made.result(60)
        taken.append(time.perf_counter() - begin)
    return sum(taken), max(taken)


def started(side: Any) -> tuple[float, float]:
    """Seconds until it serves, and those of the processor."""
    begin = time.perf_counter()
    side.start()
    return time.perf_counter() - begin, processor_seconds(side.pid)


def empty_fetch(topic: str, partition: int) -> bytes:
    """A frame with Fetch version 4, from offset 0."""
    name = topic.encode()
    body = struct.pack(">hhih5s iiiib i h", 1, 4, 7, 5, b"bench", -1, WAIT_MS, 1, 50 << 20, 0, 1, len(name)) + name
    body += struct.pack(">i iqi", 1, partition, 0, 1 << 20)
    return struct.pack(">i", len(body)) + body


def waiting_fetches(bootstrap: str, topic: str) -> list[float]:
    """ms from each request to its answer: each connection asks again at once."""
    host, _, port = bootstrap.rpartition(":")
    raise_open_files_limit()
    poll, ends, asked, taken = select.epoll(), {}, {}, []
    for number in range(CONNECTIONS):
        end = socket.create_connection((host, int(port)), 30)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ends[end.fileno()] = (end, empty_fetch(topic, number % PARTITIONS))
        poll.register(end, select.EPOLLIN)
    begin = time.perf_counter()
    for number, (end, frame) in ends.items():
        end.sendall(frame)
        asked[number] = time.perf_counter()
    while time.perf_counter() < begin + SECONDS:
        for number, _ in poll.poll(1):
            end, frame = ends[number]
            answer = end.recv(4096)  # some 60 bytes, sent at once
            if len(answer) != 4 + int.from_bytes(answer[:4], "big"):
                raise RuntimeError(f"{bootstrap} sent {answer[:80]!r} and not an empty answer")
            now = time.perf_counter()
            if now > begin + SETTLED_S:
                taken.append(1000 * (now - asked[number]))
            end.sendall(frame)
            asked[number] = time.perf_counter()
    for end, _ in ends.values():
        end.close()
    return taken


def main(report: Report, only: Sequence[str] = ()) -> None:
    """A line for each side and measurement."""
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
                "broker_scale", f"{name}: create {count}, {OF_A_REQUEST * PARTITIONS} a request",
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
