"""Writes of 2 M rows of seven columns as Avro: `value.format` of the sink, compared with Spark's to_avro.

to_avro is used with kafkalog's sink, and with Spark's Kafka sink to Apache Kafka. All run in turn on `local[2]` with
Spark's default settings, and Spark generates the rows during the write.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession, with_jars
from benchmarks.typed_formats import SCHEMA, spark_avro
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

ROWS = 2_000_000
PARTITIONS = 4
STRUCT = (
    "named_struct('id', 1 + id * 37, 'user', concat('user-', id % 10000), 'amount', cast(id % 100000 as double) / 100, "
    "'country', element_at(array('DE', 'FR', 'PL', 'US'), cast(id % 4 as int) + 1), 'active', id % 3 = 0, "
    "'at', timestamp_micros(1700000000000000 + id * 1000), 'note', concat('note ', id % 1000, ' of nothing'))"
)
"""The fields of benchmarks.typed."""
FUNCTION = f"to_avro({STRUCT}, '{json.dumps(SCHEMA)}')"


def _save(session: SparkSession, value: str, format: str, options: dict[str, str], to: str | None = None) -> float:
    """Write rows, and return the seconds. `value`: expression of the column."""
    sink = {"format": format, "options": options, "to": to}
    request = {"rows": ROWS, "tasks": PARTITIONS, "value": f"{value} as value"}
    return session.run("range", request, action="save", sink=sink)


def _kafkalog(session: SparkSession, value: str, options: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        given = {"topic": "written", "numPartitions": str(PARTITIONS), **options}
        return _save(session, value, "kafkalog", given, str(Path(scratch) / "data"))


def main(report: Report, rounds: int = 3) -> None:
    """Report writes of Avro."""
    jar = {"spark.driver.extraClassPath": str(spark_avro())}
    connector = Connector.install()
    with (
        tempfile.TemporaryDirectory(prefix="kafkalog-bench-") as home,
        RealKafka(Path(home)) as kafka,
        SparkSession(with_jars(connector.conf, jar), connector.python) as theirs,
        SparkSession(jar) as ours,
    ):
        kafka.create_topic("by-connector", PARTITIONS)
        typed = {"value.format": "avro", "value.schema": json.dumps(SCHEMA)}
        sent = {"topic": "by-connector", "kafka.bootstrap.servers": kafka.bootstrap}
        seconds = in_turn(
            {
                "typed": partial(_kafkalog, ours, STRUCT, typed),
                "function": partial(_kafkalog, ours, FUNCTION, {}),
                "kafka": partial(_save, theirs, FUNCTION, "kafka", sent),
            },
            rounds=rounds,
            warmups=1,
        )
        millions = ROWS / 1e6
        report.add(
            "typed_write",
            f"avro, {millions:g} M rows of 7 fields",
            typed_M_rows_per_s=rate(millions, seconds["typed"]),
            kafkalog_and_function_M_rows_per_s=rate(millions, seconds["function"]),
            kafka_and_function_M_rows_per_s=rate(millions, seconds["kafka"]),
            x_to_avro=round(ratio(seconds["function"], seconds["typed"]), 2),
            x_kafka=round(ratio(seconds["kafka"], seconds["typed"]), 2),
            worker_peak_MB=ours.worker_peak_mb(),
        )


if __name__ == "__main__":
    main(Report())
