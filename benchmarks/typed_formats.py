"""Avro and Protobuf values of benchmarks.typed, with the same seven fields as its JSON, and Spark's functions for them.

from_avro is in the jar spark-avro from Maven, whose release for Spark 4.1 also works with 4.2 and 4.3. from_protobuf is
in spark-protobuf, which some Maven repositories lack; KAFKALOG_SPARK_PROTOBUF may contain its class path instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.topics import POOL, Topic, home
from tests.interop.real_kafka import maven_jar

AVRO = Topic("none", 60, 2_000_000, prefix="avro")
PROTOBUF = Topic("none", 60, 2_000_000, prefix="protobuf")
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
SPARK_PROTOBUF = "org.apache.spark:spark-protobuf_2.13:4.1.1"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["DE", "FR", "PL", "US"]}},
        {"name": "active", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": "string"},
    ],
}
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Country { DE = 0; FR = 1; PL = 2; US = 3; }
message Order {
  int64 id = 1; optional string user = 2; double amount = 3; Country country = 4; bool active = 5;
  google.protobuf.Timestamp at = 6; string note = 7;
}
"""


def rows() -> list[dict[str, Any]]:
    """Return the values before encoding."""
    random = Random(7)
    return [
        {
            "id": 1 + n * 37,  # not 0: Protobuf does not encode it, and Spark reads it as null
            "user": f"user-{random.randrange(10**6):06d}",
            "amount": random.randrange(10**6) / 100,
            "country": random.choice(("DE", "FR", "PL", "US")),
            "active": random.random() < 0.5,
            "at": 1_704_067_200_000_000 + random.randrange(10**13),
            "note": "x" * 20,
        }
        for n in range(POOL)
    ]


def values_of(name: str) -> list[bytes]:
    """Return the values encoded in the format `avro` (by fastavro) or `protobuf` (by Google's library)."""
    return _avro_values() if name == "avro" else _protobuf_values()


def _avro_values() -> list[bytes]:
    import io

    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    values = []
    for row in rows():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        values.append(out.getvalue())
    return values


def descriptor_set() -> Path:
    """Return the descriptor set file for from_protobuf and `descFilePath`, which the first call compiles."""
    path = home() / "order.desc"
    if not path.exists():
        home().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "order.proto").write_text(PROTO)
            command = (sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_imports", "-o", str(path))
            subprocess.run([*command, "order.proto"], cwd=directory, check=True)
    return path


def _protobuf_values() -> list[bytes]:
    from google.protobuf import message_factory

    from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of

    path = descriptor_set()
    pool, names = pool_of(path.read_bytes(), str(path))
    order = message_factory.GetMessageClass(message_of(pool, names, "Order", str(path)))
    values = []
    for row in rows():
        message = order(**{**row, "at": None})
        message.at.FromMicroseconds(row["at"])
        values.append(message.SerializeToString())
    return values


def spark_avro() -> Path:
    """Return the jar with from_avro, which the first call gets from Maven."""
    return maven_jar(SPARK_AVRO, home() / "jars")


def spark_protobuf(directory: Path) -> str:
    """Return the class path with from_protobuf: KAFKALOG_SPARK_PROTOBUF, or a jar from Maven in `directory`.

    Raises RuntimeError with the message of Maven if neither is available.
    """
    return os.environ.get("KAFKALOG_SPARK_PROTOBUF") or str(maven_jar(SPARK_PROTOBUF, directory))


def avro_function() -> str:
    """Return the expression that applies from_avro to `value`."""
    return f"from_avro(value, '{json.dumps(SCHEMA)}', map('mode', 'PERMISSIVE'))"


def protobuf_function() -> str:
    """Return the expression that applies from_protobuf to `value`."""
    return f"from_protobuf(value, 'Order', '{descriptor_set()}', map('mode', 'PERMISSIVE'))"
