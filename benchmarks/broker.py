"""The broker against a real Apache Kafka: produce, fetch, round trips, one-record requests, start, memory.

The same librdkafka clients with the same settings load both brokers in turn, on one disk. Kafka's JVM is warmed up
first. Rates are those of the best of several rounds. `python -m benchmarks.broker produce lz4` runs the measurements
whose names contain all of these words; `metrics` runs benchmarks.broker_metrics.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks import broker_crowd, broker_metrics, broker_start
from benchmarks.broker_clients import Clients, consume, one_record_requests, produce, round_trips
from benchmarks.broker_sides import Side, delete_topic, new_topic, resident_mb, running_sides
from benchmarks.report import Report, best_rate, best_ratio, in_turn

PARTITIONS = 4
CLIENTS = (1, 4)
CODECS = ("none", "lz4")
RECORDS = {100: 1_000_000, 1000: 250_000}
"""Number of records by size of a value: a run takes about a second."""
TRIPS = 1500
REQUESTS = {1: 6_000, 4: 16_000}
"""Number of requests of all clients together, by number of clients."""


def plural(count: int, what: str) -> str:
    """Return a count with its noun, such as "1 client" or "4 clients"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def load(
    report: Report,
    brokers: Mapping[str, Side],
    clients: Clients,
    rounds: int,
    size: int,
    codec: str,
    count: int,
    beside: str = "",
) -> None:
    """Report the rates of producing and of consuming.

    Args:
        beside: Description of a further load, appended to the names of the measurements.
    """
    records, topics = RECORDS[size] // count * count, dict.fromkeys(brokers, "")

    def produced(name: str) -> float:
        topics[name] = new_topic(brokers[name], PARTITIONS)
        one = {
            "bootstrap": brokers[name].bootstrap, "topic": topics[name], "records": records // count, "size": size,
            "codec": codec,
        }  # fmt: skip
        return clients.run(produce, [one] * count).seconds

    def consumed(name: str) -> float:
        jobs = [
            {"bootstrap": brokers[name].bootstrap, "topic": topics[name], "partitions": range(n, PARTITIONS, count)}
            for n in range(count)
        ]
        done = clients.run(consume, jobs)
        if sum(done.results) != records:
            raise RuntimeError(f"{name}: {sum(done.results)} records of {records}")
        delete_topic(brokers[name], topics[name])
        return done.seconds

    runs = {(what.__name__, name): partial(what, name) for what in (produced, consumed) for name in brokers}
    seconds = in_turn(runs, rounds=rounds, warmups=1)
    for what in ("produced", "consumed"):
        ours, kafka = seconds[what, "kafkalog"], seconds[what, "kafka"]
        report.add(
            "broker",
            f"{'produce' if what == 'produced' else 'fetch'}, {plural(count, 'client')}, {size} B, {codec}{beside}",
            kafkalog_k_records_per_s=best_rate(records / 1000, ours),
            kafka_k_records_per_s=best_rate(records / 1000, kafka),
            kafkalog_MB_per_s=best_rate(records * size / 1e6, ours),
            x_apache_kafka=round(best_ratio(kafka, ours), 2),
            bar=">= 1.0",
        )


def requests(report: Report, brokers: Mapping[str, Side], clients: Clients, rounds: int, count: int) -> None:
    """Report the rate of produce requests with one record each."""
    total = REQUESTS[count]

    def sent(name: str) -> float:
        topic = new_topic(brokers[name], PARTITIONS)
        one = {
            "bootstrap": brokers[name].bootstrap, "topic": topic, "requests": total // count, "partitions": PARTITIONS
        }  # fmt: skip
        seconds = clients.run(one_record_requests, [one] * count).seconds
        delete_topic(brokers[name], topic)
        return seconds

    seconds = in_turn({name: partial(sent, name) for name in brokers}, rounds=rounds, warmups=1)
    report.add(
        "broker",
        f"one-record requests, {plural(count, 'producer')}",
        kafkalog_k_requests_per_s=best_rate(total / 1000, seconds["kafkalog"]),
        kafka_k_requests_per_s=best_rate(total / 1000, seconds["kafka"]),
        x_apache_kafka=round(best_ratio(seconds["kafka"], seconds["kafkalog"]), 2),
        bar=">= 1.0",
    )


def latency(report: Report, brokers: Mapping[str, Side], clients: Clients, rounds: int) -> None:
    """Report p50 and p99 of the round trips of all rounds together."""
    durations: dict[str, list[float]] = {name: [] for name in brokers}

    def trips(name: str) -> float:
        topic = new_topic(brokers[name], 1)
        done = clients.run(round_trips, [{"bootstrap": brokers[name].bootstrap, "topic": topic, "trips": TRIPS}])
        durations[name] += done.results[0]
        delete_topic(brokers[name], topic)
        return done.seconds

    in_turn({name: partial(trips, name) for name in brokers}, rounds=rounds, warmups=0)
    percentiles = {name: statistics.quantiles(all_trips, n=100) for name, all_trips in durations.items()}
    ours, kafka = percentiles["kafkalog"], percentiles["kafka"]
    report.add(
        "broker",
        "produce-to-consume round trip, linger 0",
        kafkalog_p50_ms=round(ours[49], 3),
        kafka_p50_ms=round(kafka[49], 3),
        x_time_of_apache_kafka_p50=round(ours[49] / kafka[49], 2),
        bar_p50="<= 1.5",
        kafkalog_p99_ms=round(ours[98], 2),
        kafka_p99_ms=round(kafka[98], 2),
        x_time_of_apache_kafka_p99=round(ours[98] / kafka[98], 2),
        bar_p99="<= 1.0",
    )


def memory(report: Report, brokers: Mapping[str, Side]) -> None:
    """Report the resident memory after all loads."""
    resident = {f"{name}_MB": resident_mb(side.pid) for name, side in brokers.items()}
    report.add("broker", "resident memory, after the load", **resident)


def measurements(
    report: Report, brokers: Mapping[str, Side], clients: Clients, rounds: int
) -> dict[str, Callable[[], None]]:
    """Return the measurements of two running brokers, by a name of several words."""
    by_name: dict[str, Callable[[], None]] = {}
    measure = partial(load, report, brokers, clients, rounds)
    for size, codec, count in itertools.product(RECORDS, CODECS, CLIENTS):
        by_name[f"produce fetch {size} {codec} {count}-clients"] = partial(measure, size, codec, count)
    for count in CLIENTS:
        by_name[f"requests {count}-clients"] = partial(requests, report, brokers, clients, rounds, count)
    by_name["latency"] = partial(latency, report, brokers, clients, rounds)
    by_name["memory"] = partial(memory, report, brokers)
    by_name["crowd"] = partial(broker_crowd.main, report, brokers, partial(measure, 100, "none", max(CLIENTS)))
    return by_name


def warm_up(brokers: Mapping[str, Side], clients: Clients) -> None:
    """Run every kind of load for some seconds without a report, until the JVM has compiled its code."""
    silent = Report(silent=True)
    for codec in CODECS:
        load(silent, brokers, clients, 1, 100, codec, max(CLIENTS))
    requests(silent, brokers, clients, 1, max(CLIENTS))
    latency(silent, brokers, clients, 1)


def main(report: Report, rounds: int = 5, words: Sequence[str] = ()) -> None:
    """Run all measurements, or those whose names contain all `words`."""
    if set(words) <= {"start"}:
        broker_start.main(report)
    if set(words) <= {"metrics"}:
        broker_metrics.main(report)
    with running_sides() as brokers, Clients(max(CLIENTS)) as clients:
        chosen = {
            name: measure
            for name, measure in measurements(report, brokers, clients, rounds).items()
            if set(words) <= set(name.split())
        }
        if chosen:
            warm_up(brokers, clients)
        for measure in chosen.values():
            measure()


if __name__ == "__main__":
    main(Report(), words=sys.argv[1:])
