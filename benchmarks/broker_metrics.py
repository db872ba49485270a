"""Cost of metrics: processor time of a broker with metrics, scraped once a second, against one without.

Both have the same load in short alternating runs. The order within a pair of runs alternates, too, so that other work
on the machine affects both. The cost is the median over the pairs, with its quartiles.

On a busy machine the pairs differ by more than the cost. Therefore the last row measures the parts: the time that
counting adds to a request (best of many runs in this process) against the processor time of a one-record request, and
the processor time of a scrape.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_clients import Clients, consume, one_record_requests, produce
from benchmarks.broker_sides import PROPERTIES, delete_topic, new_topic
from benchmarks.report import Report
from kafkalog_broker import api
from kafkalog_broker.metrics.request_counts import RequestCounts, counting_dispatch
from kafkalog_broker.testing import RunningBroker

PARTITIONS = 4
RECORDS, SIZE = 1_000_000, 100
REQUESTS = 10_000
SCRAPE_S = 1.0


def cpu_s(pid: int | None) -> float:
    """Return the processor time in seconds of all living threads of a process. Linux only."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def scrape(url: str, stop: threading.Event) -> None:
    while not stop.wait(SCRAPE_S):
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()


def main(report: Report, rounds: int = 16) -> None:
    api.load_all()
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack, Clients(1) as clients:
        brokers = {
            name: stack.enter_context(RunningBroker(Path(home, name), PROPERTIES, metrics=name == "with"))
            for name in ("with", "without")
        }
        stop = threading.Event()
        scraper = threading.Thread(target=scrape, args=(brokers["with"].metrics_url, stop))
        scraper.start()
        try:
            for what, load in loads(clients).items():
                used = in_pairs({name: partial(measured, broker, load) for name, broker in brokers.items()}, rounds)
                low, middle, high = statistics.quantiles(
                    (100 * (one / other - 1) for one, other in zip(used["with"], used["without"], strict=True)), n=4
                )
                report.add(
                    "broker",
                    f"metrics, {what}",
                    cpu_s_without=round(statistics.median(used["without"]), 3),
                    cpu_s_with=round(statistics.median(used["with"]), 3),
                    cost_percent=round(middle, 2),
                    cost_percent_quartiles=[round(low, 2), round(high, 2)],
                    pairs=rounds,
                    bar="< 2",
                )
                cpu_s_each = min(used["without"]) / REQUESTS
        finally:
            stop.set()
            scraper.join()
        counting_us, scraping_ms = 1e6 * counting_s(), 1e3 * scraping_s(brokers["with"])
        report.add(
            "broker",
            "metrics, in parts",
            request_cpu_us=round(1e6 * cpu_s_each, 1),
            counting_us=round(counting_us, 2),
            counting_percent=round(100 * counting_us / (1e6 * cpu_s_each), 2),
            scrape_cpu_ms=round(scraping_ms, 2),
            one_scrape_a_second_percent_of_a_core=round(scraping_ms / 10, 2),
            bar="< 2",
        )


def counting_s() -> float:
    """Return the seconds that counting adds to a request: best run with it minus best run without it."""
    pieces, frame = [bytes(60)], bytes(200)

    def serve(_frame: object, _connection: object) -> list[bytes]:
        return pieces

    best: dict[bool, float] = {}
    runs: Mapping[bool, Any] = {False: serve, True: counting_dispatch(serve, RequestCounts())}
    for _ in range(20):
        for is_counted, run in runs.items():
            began = time.perf_counter()
            for _ in range(50_000):
                run(frame, None)
            best[is_counted] = min(best.get(is_counted, 1.0), (time.perf_counter() - began) / 50_000)
    return best[True] - best[False]


def scraping_s(broker: RunningBroker, times: int = 100) -> float:
    """Return the processor time in seconds of the broker for one scrape."""
    before = cpu_s(broker.pid)
    for _ in range(times):
        with urllib.request.urlopen(str(broker.metrics_url), timeout=30) as answer:
            answer.read()
    return (cpu_s(broker.pid) - before) / times


def in_pairs(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run A, B, B, A, A, B and so on, after one warm-up of each. Return the results of each run by name."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for round_ in range(rounds + 1):
        for name in order:
            result = runs[name]()
            if round_:
                results[name].append(result)
        order.reverse()
    return results


def measured(broker: RunningBroker, load: Callable[[str, str], None]) -> float:
    """Return the processor time in seconds of the broker for a load of a new topic."""
    topic = new_topic(broker, PARTITIONS)
    before = cpu_s(broker.pid)
    load(broker.bootstrap, topic)
    used = cpu_s(broker.pid) - before
    delete_topic(broker, topic)
    return used


def loads(clients: Clients) -> Mapping[str, Callable[[str, str], None]]:
    def bulk(bootstrap: str, topic: str) -> None:
        one = {"bootstrap": bootstrap, "topic": topic, "records": RECORDS, "size": SIZE, "codec": "none"}
        clients.run(produce, [one])
        clients.run(consume, [{"bootstrap": bootstrap, "topic": topic, "partitions": range(PARTITIONS)}])

    def small(bootstrap: str, topic: str) -> None:
        one = {"bootstrap": bootstrap, "topic": topic, "requests": REQUESTS, "partitions": PARTITIONS}
        clients.run(one_record_requests, [one])

    return {f"{RECORDS} records of {SIZE} B produced and fetched": bulk, f"{REQUESTS} one-record requests": small}
