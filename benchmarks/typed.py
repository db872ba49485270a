"""Reads of typed values to `noop`: `value.format` of kafkalog, compared with Spark's decoding functions.

Spark's function is applied after format("kafkalog"), and after format("kafka") from Apache Kafka with the same files.
The upper limit is a source that hands over the same columns from memory. All run in turn on `local[2]`, with Spark's
default settings and with Unix domain sockets for Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from benchmarks.data import JSON, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SOCKETS, SparkSession, with_jars
from benchmarks.topics import PARTITIONS, Topic, home
from benchmarks.typed_formats import (
    AVRO,
    PROTOBUF,
    SCHEMA,
    avro_function,
    descriptor_set,
    protobuf_function,
    spark_avro,
    spark_protobuf,
)
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka

FIELDS = {
    "id": "bigint",
    "user": "string",
    "amount": "double",
    "country": "string",
    "active": "boolean",
    "at": "timestamp",
    "note": "string",
}
FIVE = ("id", "user", "amount", "active", "at")
TWO = ("id", "amount")
WARMUPS = 5
"""Warm-up runs, until the JVM has compiled the query."""
CEILING = "benchmarks.typed_ceiling:TypedCeiling"


@dataclass(frozen=True)
class Case:
    """Format and columns that are measured.

    Attributes:
        what: Name of the measurement.
        topic: Topic that kafkalog reads.
        schema: Schema of the columns in DDL.
        function: Spark's expression that decodes `value` to a struct.
        options: Options of kafkalog for the format.
        conf: Spark settings that the function requires.
        function_topic: Topic to which the function is applied; None for `topic`.
    """

    what: str
    topic: Topic
    schema: str
    function: str
    options: Mapping[str, str]
    conf: Mapping[str, str] = field(default_factory=dict)
    function_topic: Topic | None = None


def json_case(names: tuple[str, ...]) -> Case:
    """Return the case of some fields of the JSON values."""
    schema = ", ".join(f"{name} {FIELDS[name]}" for name in names)
    return Case(
        f"JSON, {JSON.records / 1e6:g} M x {JSON.value_size} B, {len(names)} of {len(FIELDS)} fields",
        JSON,
        schema,
        f"from_json(cast(value as string), '{schema}')",
        {"value.format": "json"},
    )


def binary_case(topic: Topic, names: tuple[str, ...]) -> Case:
    """Return the case of some fields of the Avro or Protobuf values.

    If from_protobuf is not available, Protobuf is compared with from_avro of the same fields in Avro.
    """
    schema = ", ".join(f"{name} {FIELDS[name]}" for name in names)
    options: dict[str, str] = {"value.format": topic.prefix}
    if topic.prefix == "avro":
        options["value.schema"] = json.dumps(SCHEMA)
    else:
        options |= {"value.descFilePath": str(home() / "order.desc"), "value.messageName": "Order"}
    what = f"{topic.prefix.capitalize()}, {topic.records / 1e6:g} M x {topic.value_size} B"
    function, function_topic, jars = avro_function(), AVRO, str(home() / "jars" / "*")
    if topic.prefix == "protobuf" and (protobuf := _protobuf_jars()) is not None:
        function, function_topic, jars = protobuf_function(), PROTOBUF, protobuf
    jar = {"spark.driver.extraClassPath": jars}
    return Case(f"{what}, {len(names)} of {len(FIELDS)} fields", topic, schema, function, options, jar, function_topic)


@cache
def _protobuf_jars() -> str | None:
    """Return the class path of from_protobuf, or None if it is not available."""
    try:
        return spark_protobuf(home() / "protobuf-jars")
    except RuntimeError:
        return None


def cases() -> tuple[Case, ...]:
    """Return all cases."""
    return (
        json_case(FIVE),
        json_case(TWO),
        binary_case(AVRO, tuple(FIELDS)),
        binary_case(AVRO, TWO),
        binary_case(PROTOBUF, tuple(FIELDS)),
    )


def compare(
    report: Report, case: Case, ours: SparkSession, theirs: SparkSession, bootstrap: str, settings: str, rounds: int
) -> None:
    """Report the rates of a case and their ratios."""
    path = str(ensure([case.topic]))
    kafkalog: dict[str, object] = {"subscribe": case.topic.name}
    function_topic = (case.function_topic or case.topic).name
    kafka = {"subscribe": function_topic, "kafka.bootstrap.servers": bootstrap}
    plain = {"subscribe": function_topic, "columns": "value"}
    decoded: dict[str, Any] = {"schema": case.schema, "path": path}
    function = {"expressions": [f"{case.function} as decoded"], "select": ["decoded.*"]}
    prepared = {"partitions": PARTITIONS, "rows": case.topic.records // PARTITIONS}
    first = case.schema.split()[0]
    # check once that all rows are decoded and not null
    ours.run(
        "kafkalog", {**kafkalog, **case.options}, filter=f"{first} is not null", action="count",
        expect=case.topic.records, **decoded,
    )  # fmt: skip
    seconds = in_turn(
        {
            "typed": partial(ours.run, "kafkalog", {**kafkalog, **case.options}, **decoded),
            "function": partial(ours.run, "kafkalog", plain, path=path, **function),
            "kafka": partial(theirs.run, "kafka", kafka, **function),
            "ceiling": partial(ours.run, "typed_ceiling", prepared, schema=case.schema, register=CEILING),
        },
        rounds=rounds,
        warmups=WARMUPS,
    )
    millions = case.topic.records / 1e6
    name = case.function.partition("(")[0]
    report.add(
        "typed",
        f"{case.what}, {settings}",
        typed_M_rows_per_s=rate(millions, seconds["typed"]),
        kafkalog_and_function_M_rows_per_s=rate(millions, seconds["function"]),
        kafka_and_function_M_rows_per_s=rate(millions, seconds["kafka"]),
        ceiling_M_rows_per_s=rate(millions, seconds["ceiling"]),
        **{f"x_{name}": round(ratio(seconds["function"], seconds["typed"]), 2)},
        x_kafka=round(ratio(seconds["kafka"], seconds["typed"]), 2),
        ceiling_x_kafka=round(ratio(seconds["kafka"], seconds["ceiling"]), 2),
        x_ceiling=round(ratio(seconds["ceiling"], seconds["typed"]), 2),
        worker_peak_MB=ours.worker_peak_mb(),
    )


def main(report: Report, rounds: int = 3) -> None:
    """Measure all cases with both settings."""
    spark_avro()
    descriptor_set()
    lines = cases()
    ensure(dict.fromkeys(topic for case in lines for topic in (case.topic, case.function_topic or case.topic)))
    connector = Connector.install()
    with RealKafka(home()) as kafka:
        for settings, conf in (("default settings", {}), ("Unix domain sockets", SOCKETS)):
            for case in lines:
                with (
                    SparkSession(with_jars(connector.conf, case.conf), connector.python) as theirs,
                    SparkSession({**conf, **case.conf}) as ours,
                ):
                    compare(report, case, ours, theirs, kafka.bootstrap, settings, rounds)


if __name__ == "__main__":
    main(Report())
