"""Many TLS handshakes per second, and the latency of another client meanwhile.

The broker runs on one core, the clients on the others. Handshakes begin at a fixed rate; if the broker cannot keep up,
the measured rate is lower.
"""

from __future__ import annotations

import os
import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing import get_context
from typing import Any

from kio.schema.api_versions.v3.request import ApiVersionsRequest

from benchmarks.broker_metrics import cpu_s
from benchmarks.report import Report
from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.client_requests import exchange

SECONDS = 10.0
RATES = (0, 250, 500)
THREADS = 16
PROBE_S = 0.005
"""Seconds between two requests of the other client."""

REQUEST = ApiVersionsRequest(client_software_name="benchmark", client_software_version="1")


def handshakes(port: int, per_second: int, begin: float, cores: set[int]) -> tuple[int, float]:
    """Connect, complete a handshake and close, `per_second` times a second.

    Returns:
        Number of handshakes, and seconds since `begin`.
    """
    os.sched_setaffinity(0, cores)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    count = int(SECONDS * per_second)
    lock, numbers = threading.Lock(), iter(range(count))

    def run() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
            with socket.create_connection(("127.0.0.1", port), 30) as plain, context.wrap_socket(plain):
                pass

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count, time.monotonic() - begin


def probe(broker: RunningBroker, until: float) -> dict[int, list[float]]:
    """Return the ms of each round trip of a connected client, by the second of the clock in which it ended."""
    durations: dict[int, list[float]] = {}
    with broker.connect() as connection:
        while time.monotonic() < until:
            began = time.perf_counter()
            exchange(connection, REQUEST)
            durations.setdefault(int(time.monotonic()), []).append((time.perf_counter() - began) * 1000)
            time.sleep(PROBE_S)
    return durations


def main(report: Report, rates: tuple[int, ...] = RATES) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for_broker, for_clients = {cores[0]}, set(cores[1:]) or {cores[0]}
    with running_broker(security="SSL") as broker, get_context("spawn").Pool(1) as pool:
        assert broker.pid is not None
        for thread in os.listdir(f"/proc/{broker.pid}/task"):
            os.sched_setaffinity(int(thread), for_broker)
        os.sched_setaffinity(0, for_clients)
        for rate in rates:
            begin = time.monotonic() + 1.0
            load: Any = pool.apply_async(handshakes, (broker.port, rate, begin, for_clients)) if rate else None
            before = cpu_s(broker.pid)
            by_second = probe(broker, begin + SECONDS)
            durations = [ms for second in by_second.values() for ms in second]
            handshake_figures: Mapping[str, object] = {}
            if load is not None:
                count, seconds = load.get(60)
                used_ms = (cpu_s(broker.pid) - before) * 1000
                handshake_figures = {
                    "handshakes_per_s": round(count / seconds),
                    "broker_cpu_ms_each": round(used_ms / count, 2),
                }
            report.add(
                "security",
                f"{rate} TLS handshakes a second asked for, on one core",
                **handshake_figures,
                other_client_p50_ms=round(statistics.median(durations), 2),
                other_client_p99_ms=round(statistics.quantiles(durations, n=100)[98], 1),
                other_client_longest_ms=round(max(durations), 1),
                longest_of_the_median_second_ms=round(statistics.median(map(max, by_second.values())), 1),
                bar_longest="<= 50",
            )
        os.sched_setaffinity(0, set(cores))


if __name__ == "__main__":
    main(Report(), tuple(map(int, sys.argv[1:])) or RATES)
