"""Full reads to `noop`: format("kafkalog"), format("kafka") from Apache Kafka with the same files, and the upper limit.

All three run in turn on `local[2]`, with Spark's default settings and with Unix domain sockets for Python. The
connector does not use Python, so one session of it is enough for both settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.data import LARGE_VALUES, SMALL_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SOCKETS, SparkSession
from benchmarks.topics import PARTITIONS, Topic, home
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

CEILING = "benchmarks.sources:Ceiling"
PRUNED = ("offset", "timestamp")


def compare(
    report: Report,
    topic: Topic,
    ours: SparkSession,
    theirs: SparkSession,
    bootstrap: str,
    settings: str,
    columns: Sequence[str] = (),
    rounds: int = 5,
) -> None:
    """Report the three rates and their ratios. `columns`: columns to read; empty for all."""
    path = str(ensure([topic]))
    kafkalog: dict[str, object] = {"subscribe": topic.name}
    kafka = {"subscribe": topic.name, "kafka.bootstrap.servers": bootstrap}
    ceiling: dict[str, object] = {
        "rows": topic.records // PARTITIONS,
        "value_size": topic.value_size,
        "topic": topic.name,
    }
    if columns:
        kafkalog["columns"] = ceiling["columns"] = ",".join(columns)
    # check once that all rows are read
    ours.run("kafkalog", kafkalog, path=path, action="count", expect=topic.records)
    theirs.run("kafka", kafka, action="count", expect=topic.records)
    seconds = in_turn(
        {
            "kafkalog": partial(ours.run, "kafkalog", kafkalog, path=path),
            "kafka": partial(theirs.run, "kafka", kafka, select=list(columns) or None),
            "ceiling": partial(ours.run, "ceiling", ceiling, register=CEILING),
        },
        rounds=rounds,
    )
    millions = topic.records / 1e6
    what = f"{topic.codec}, {topic.records / 1e6:g} M x {topic.value_size} B, {settings}"
    report.add(
        "spark_read",
        what + (f", only {' and '.join(columns)}" if columns else ""),
        kafkalog_M_rows_per_s=rate(millions, seconds["kafkalog"]),
        kafka_M_rows_per_s=rate(millions, seconds["kafka"]),
        ceiling_M_rows_per_s=rate(millions, seconds["ceiling"]),
        x_kafka=round(ratio(seconds["kafka"], seconds["kafkalog"]), 2),
        x_ceiling=round(ratio(seconds["ceiling"], seconds["kafkalog"]), 2),
        worker_peak_MB=ours.worker_peak_mb(),
    )


def main(report: Report, rounds: int = 5, codecs: Sequence[str] = tuple(SMALL_VALUES)) -> None:
    """Measure all codecs with 100 B and 1 kB and both settings, and two columns of uncompressed records of 100 B."""
    topics = [sizes[codec] for codec in codecs for sizes in (SMALL_VALUES, LARGE_VALUES)]
    ensure(topics)
    connector = Connector.install()
    with RealKafka(home()) as kafka, SparkSession(connector.conf, connector.python) as theirs:
        for settings, conf in (("default settings", {}), ("Unix domain sockets", SOCKETS)):
            with SparkSession(conf) as ours:
                for topic in topics:
                    compare(report, topic, ours, theirs, kafka.bootstrap, settings, rounds=rounds)
                compare(report, topics[0], ours, theirs, kafka.bootstrap, settings, PRUNED, rounds)


if __name__ == "__main__":
    main(Report(), codecs=sys.argv[1:] or tuple(SMALL_VALUES))
