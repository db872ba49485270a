"""Writing 4 M rows of 100 bytes: format("kafkalog"), Spark's Kafka sink into a real Kafka, and a sink that only counts.

All in turn, on `local[2]`, with Spark's default settings; the rows are made by Spark as they are written. The counting
sink is what no Python sink can beat; Parquet is there for comparison.
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
# 100 bytes: half digits that differ from row to row, half text
VALUE = "cast(concat(lpad(cast(hash(id) as string), 25, cast(id as string)), lpad(cast(id as string), 25, '0'), "
VALUE += "repeat('kafkalog ', 5), 'value') as binary) value"
FEWER = 1_000_000  # rows of a run of the connector, which is slower; rates compare


def _kafkalog(session: SparkSession, codec: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        options = {"topic": "written", "numPartitions": PARTITIONS, "compression.type": codec}
        return _save(session, ROWS, "kafkalog", options, str(Path(scratch) / "data"))


def _save(session: SparkSession, rows: int, form: str, options: dict[str, object], to: str | None = None) -> float:
    """Seconds of one write."""
    text = {key: str(value) for key, value in options.items()}
    sink = {"format": form, "options": text, "to": to}
    return session.run("range", {"rows": rows, "tasks": PARTITIONS, "value": VALUE}, action="save", sink=sink)


def _parquet(session: SparkSession) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        return _save(session, ROWS, "parquet", {}, str(Path(scratch) / "data"))


def main(report: Report, rounds: int = 5) -> None:
    """none and lz4."""
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
                        "kafka": partial(_save, theirs, FEWER, "kafka", sent),
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
                full = [taken * ROWS / FEWER for taken in seconds["kafka"]]
                report.add(
                    "spark_write",
                    f"{codec}, {ROWS / 1e6:g} M x 100 B",
                    kafkalog_M_rows_per_s=rate(ROWS / 1e6, seconds["kafkalog"]),
                    kafka_M_rows_per_s=rate(FEWER / 1e6, seconds["kafka"]),
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
