"""Writes of 4 M rows of 100 bytes: format("kafkalog"), Spark's Kafka sink to Apache Kafka, and a sink that only counts.

All run in turn on `local[2]` with Spark's default settings, and Spark generates the rows during the write. The counting
sink is the upper limit for every Python sink. Parquet is measured for comparison.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

COUNTING = "benchmarks.sources:Counting"
ROWS = 4_000_000
PARTITIONS = 4
# SQL expression for 100 bytes: half of them are digits that differ from row to row, half are text
VALUE = "cast(concat(lpad(cast(hash(id) as string), 25, cast(id as string)), lpad(cast(id as string), 25, '0'), "
VALUE += "repeat('kafkalog ', 5), 'value') as binary) value"
CONNECTOR_ROWS = 1_000_000  # rows of a run of the connector, which is slower; rates are compared


def _kafkalog(session: SparkSession, codec: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        options = {"topic": "written", "numPartitions": PARTITIONS, "compression.type": codec}
        return _save(session, ROWS, "kafkalog", options, str(Path(scratch) / "data"))


def _save(session: SparkSession, rows: int, format: str, options: dict[str, object], to: str | None = None) -> float:
    """Write rows, and return the seconds."""
    text = {key: str(value) for key, value in options.items()}
    sink = {"format": format, "options": text, "to": to}
    return session.run("range", {"rows": rows, "tasks": PARTITIONS, "value": VALUE}, action="save", sink=sink)


def _parquet(session: SparkSession) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        return _save(session, ROWS, "parquet", {}, str(Path(scratch) / "data"))


def main(report: Report, rounds: int = 5) -> None:
    """Report writes without compression and with lz4."""
    connector = Connector.install()
    home = Path(tempfile.mkdtemp(prefix="kafkalog-bench-"))
    kafka = RealKafka(home)
    try:
        kafka.start()
        for codec in ("none", "lz4"):
            kafka.create_topic(f"by-connector-{codec}", PARTITIONS)
        with SparkSession(connector.conf, connector.python) as theirs, SparkSession() as ours:
            for codec in ("none", "lz4"):
                sent: dict[str, object] = {
                    "topic": f"by-connector-{codec}",
                    "kafka.bootstrap.servers": kafka.bootstrap,
                    "kafka.compression.type": codec,
                }
                seconds = in_turn(
                    {
                        "kafkalog": partial(_kafkalog, ours, codec),
                        "kafka": partial(_save, theirs, CONNECTOR_ROWS, "kafka", sent),
                        "counting": lambda: ours.run(
                            "range",
                            {"rows": ROWS, "tasks": PARTITIONS, "value": VALUE},
                            action="save",
                            sink={"format": "counting", "options": {}, "to": None},
                            register=COUNTING,
                        ),
                        "parquet": partial(_parquet, ours),
                    },
                    rounds=rounds,
                    warmups=1,
                )
                full = [duration * ROWS / CONNECTOR_ROWS for duration in seconds["kafka"]]
                report.add(
                    "spark_write",
                    f"{codec}, {ROWS / 1e6:g} M x 100 B",
                    kafkalog_M_rows_per_s=rate(ROWS / 1e6, seconds["kafkalog"]),
                    kafka_M_rows_per_s=rate(CONNECTOR_ROWS / 1e6, seconds["kafka"]),
                    counting_M_rows_per_s=rate(ROWS / 1e6, seconds["counting"]),
                    parquet_M_rows_per_s=rate(ROWS / 1e6, seconds["parquet"]),
                    x_kafka=round(ratio(full, seconds["kafkalog"]), 2),
                    x_counting=round(ratio(seconds["counting"], seconds["kafkalog"]), 2),
                    worker_peak_MB=ours.worker_peak_mb(),
                )
        kafka.stop()
    finally:
        kafka.kill()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main(Report())
