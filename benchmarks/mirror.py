"""kafkalog-mirror compared with a librdkafka consumer that only counts, and with MirrorMaker 2.

The source is Apache Kafka. Each reader runs in a process of its own and is measured from the first tenth of the data to
the end, so that its start, metadata and connections are not measured. `latency` is that of Spark reading the mirror.
`python -m benchmarks.mirror consumer 1000` runs the measurements whose names contain all of these words.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.broker_clients import Clients, produce
from benchmarks.broker_sides import PROPERTIES, delete_topic, new_topic
from benchmarks.mirror_maker import MirrorMaker
from benchmarks.mirror_readers import WARM, Steady, count_records
from benchmarks.report import Report
from benchmarks.spark_session import SparkSession
from benchmarks.streaming import COLD, EVERY_SECONDS, SEEN, Pacer
from tests.broker.mirror.helpers.mirrors import MirrorProcess
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

PARTITIONS = 4
RECORDS = {100: 4_000_000, 1000: 1_000_000}  # by size of a value
CODECS = ("none", "lz4")
PRODUCERS = 2
TIMEOUT_S = 300
_TICKS = os.sysconf("SC_CLK_TCK")


class Source(NamedTuple):
    """Topic of Apache Kafka with all its records."""

    kafka: RealKafka
    topic: str
    records: int
    data_bytes: int


def filled(kafka: RealKafka, clients: Clients, size: int, codec: str, records: int) -> Source:
    """Create a topic with `records` records in PARTITIONS partitions."""
    topic = new_topic(kafka, PARTITIONS)
    one = {
        "bootstrap": kafka.bootstrap, "topic": topic, "records": records // PRODUCERS, "size": size, "codec": codec
    }  # fmt: skip
    clients.run(produce, [one] * PRODUCERS)
    return Source(kafka, topic, records, log_bytes(kafka.data_dir, topic))


def has_records(directory: Path, topic: str) -> bool:
    """Return True if a .log file of the topic is not empty."""
    return any(path.stat().st_size for path in directory.glob(f"{topic}-*/*.log"))


def log_bytes(directory: Path, topic: str) -> int:
    """Return the size of a topic's .log files in a log directory."""
    total = 0
    for partition in range(PARTITIONS):
        try:
            with os.scandir(directory / f"{topic}-{partition}") as entries:
                total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
        except FileNotFoundError:
            continue
    return total


def processor_s(pid: int) -> float:
    """Return the user and system time of a process in seconds. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def observed(directory: Path, topic: str, total: int, pid: int) -> Steady:
    """Observe a process that writes `total` bytes of logs, from the fraction WARM of them to the end."""
    end = time.monotonic() + TIMEOUT_S
    begun: tuple[float, float, int] | None = None
    while (now := log_bytes(directory, topic)) < total:
        if begun is None and now >= total * WARM:
            begun = (time.perf_counter(), processor_s(pid), now)
        if time.monotonic() > end:
            raise RuntimeError(f"{topic}: {now} of {total} bytes in {TIMEOUT_S} s")
        time.sleep(0.002)
    done = time.perf_counter(), processor_s(pid)
    if begun is None:
        raise RuntimeError(f"{topic}: {total} bytes were written too fast to be measured")
    return Steady(total - begun[2], done[0] - begun[0], done[1] - begun[1])


def mirrored(source: Source, home: Path) -> Steady:
    """Run kafkalog-mirror once."""
    target = home / "mirror"
    with MirrorProcess(source.kafka.bootstrap, target, topics=source.topic) as running:
        assert running.pid is not None
        steady = observed(target, source.topic, source.data_bytes, running.pid)
        running.stop()
    shutil.rmtree(target)
    return steady


def counted(source: Source, clients: Clients) -> Steady:
    """Run a consumer that only counts once."""
    request = {
        "bootstrap": source.kafka.bootstrap, "topic": source.topic, "partitions": range(PARTITIONS),
        "data_bytes": source.data_bytes,
    }  # fmt: skip
    steady: Steady = clients.run(count_records, [request]).results[0]
    return steady


def against_consumer(report: Report, kafka: RealKafka, home: Path, rounds: int, size: int, codec: str) -> None:
    """Report kafkalog-mirror and a consumer, measured in turn."""
    with Clients(PRODUCERS) as clients:
        source = filled(kafka, clients, size, codec, RECORDS[size])
        results: dict[str, list[Steady]] = {"mirror": [], "consumer": []}
        runs = {"mirror": partial(mirrored, source, home), "consumer": partial(counted, source, clients)}
        for number in range(rounds + 1):
            for name, run in runs.items():
                steady = run()
                if number:
                    results[name].append(steady)
    delete_topic(kafka, source.topic)
    best = {name: max(one.rate for one in all_rounds) for name, all_rounds in results.items()}
    report.add(
        "mirror",
        f"{size} B, {codec}, {source.data_bytes / 1e6:.0f} MB, {PARTITIONS} partitions, against a consumer that counts",
        mirror_MB_per_s=round(best["mirror"] / 1e6),
        consumer_MB_per_s=round(best["consumer"] / 1e6),
        x_of_consumer=round(best["mirror"] / best["consumer"], 2),
        x_of_consumer_median=round(
            statistics.median(a.rate / b.rate for a, b in zip(results["mirror"], results["consumer"], strict=True)), 2
        ),
        bar=">= 0.8",
        mirror_cpu_s_per_GB=round(min(one.cpu_per_gb for one in results["mirror"]), 2),
        consumer_cpu_s_per_GB=round(min(one.cpu_per_gb for one in results["consumer"]), 2),
    )


def against_mirror_maker(report: Report, kafka: RealKafka, home: Path, rounds: int, size: int, codec: str) -> None:
    """Report kafkalog-mirror and MirrorMaker 2, which writes to a second Kafka, measured in turn."""
    with Clients(PRODUCERS) as clients:
        source = filled(kafka, clients, size, codec, RECORDS[size] // 4)
    results: dict[str, list[Steady]] = {"mirror": [], "mirror maker": []}
    with RealKafka(home / "target", PROPERTIES) as target:
        for number in range(rounds):
            results["mirror"].append(mirrored(source, home))
            with MirrorMaker(home / f"mm{number}", kafka.bootstrap, target.bootstrap, source.topic) as maker:
                copied = observed(target.data_dir, source.topic, maker.least_bytes(source), maker.pid)
                results["mirror maker"].append(copied)
            delete_topic(target, source.topic)
            while log_bytes(target.data_dir, source.topic):
                time.sleep(0.1)
    delete_topic(kafka, source.topic)
    best = {name: max(one.rate for one in all_rounds) for name, all_rounds in results.items()}
    report.add(
        "mirror",
        f"{size} B, {codec}, {source.data_bytes / 1e6:.0f} MB, {PARTITIONS} partitions, against MirrorMaker 2",
        mirror_MB_per_s=round(best["mirror"] / 1e6),
        mirror_maker_MB_per_s=round(best["mirror maker"] / 1e6),
        x_mirror_maker=round(best["mirror"] / best["mirror maker"], 1),
        bar=">= 3",
        mirror_cpu_s_per_GB=round(min(one.cpu_per_gb for one in results["mirror"]), 2),
        mirror_maker_cpu_s_per_GB=round(min(one.cpu_per_gb for one in results["mirror maker"]), 2),
    )


def latency(report: Report, kafka: RealKafka, home: Path, rounds: int) -> None:
    """Report the latency from a record's timestamp to foreachBatch with a trigger of 0 s and a record every 50 ms.

    kafkalog reads the mirror while it copies; Spark's connector reads the source.
    """
    connector = Connector.install()
    topic = new_topic(kafka, 1)
    options: dict[str, object] = {"subscribe": topic}
    latencies: dict[str, list[float]] = {"mirror": [], "source": []}
    target = home / "latency"
    with (
        MirrorProcess(kafka.bootstrap, target, topics=topic),
        SparkSession() as ours,
        SparkSession(connector.conf, connector.python) as theirs,
        Pacer(kafka.bootstrap, topic, partitions=1, batch=1, every_seconds=EVERY_SECONDS, value_size=20),
    ):
        while not has_records(target, topic):
            time.sleep(0.1)
        for number in range(rounds + 1):
            for name in latencies:
                with TemporaryDirectory() as checkpoint:
                    request: dict[str, Any] = {"checkpoint": checkpoint, "records": SEEN}
                    if name == "mirror":
                        seen = ours.latencies("kafkalog", options, path=str(target), **request)
                    else:
                        more = {**options, "kafka.bootstrap.servers": kafka.bootstrap}
                        seen = theirs.latencies("kafka", more, **request)
                if number:  # the first one warms the sessions up
                    latencies[name] += seen[COLD:]
    percentiles = {name: statistics.quantiles(seen, n=100) for name, seen in latencies.items()}
    report.add(
        "mirror",
        "readStream over the mirror, 20 records/s, trigger 0 s, against the connector on the source",
        mirror_p50_ms=round(percentiles["mirror"][49]),
        source_p50_ms=round(percentiles["source"][49]),
        x_time_of_kafka_p50=round(percentiles["mirror"][49] / percentiles["source"][49], 2),
        bar="<= 1.5",
        mirror_p99_ms=round(percentiles["mirror"][98]),
        source_p99_ms=round(percentiles["source"][98]),
    )


def main(report: Report, rounds: int = 3, words: Sequence[str] = ()) -> None:
    """Run all measurements, or those whose names contain all `words`."""
    wanted = set(words)
    with TemporaryDirectory(prefix="kafkalog-bench-") as name, RealKafka(Path(name) / "kafka", PROPERTIES) as kafka:
        home = Path(name)
        for size, codec in itertools.product(RECORDS, CODECS):
            if wanted <= {"consumer", str(size), codec}:
                against_consumer(report, kafka, home, rounds, size, codec)
        if wanted <= {"mirrormaker", "1000", "none"}:
            against_mirror_maker(report, kafka, home, 1, 1000, "none")
        if wanted <= {"latency"}:
            latency(report, kafka, home, rounds)


if __name__ == "__main__":
    main(Report(), words=sys.argv[1:])
