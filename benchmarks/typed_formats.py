"""The cases of benchmarks.typed in Avro and Protobuf: the seven fields of its JSON.

Spark's from_avro comes with spark-avro, from Maven; the newest release there is of 4.1, and works with Spark 4.2 and
4.3, whose own part of it, the deserializer, is in Spark itself. from_protobuf comes with spark-protobuf, which not
every Maven repository has: KAFKALOG_SPARK_PROTOBUF names one that is here already, as a class path. Where there is
none, Protobuf stands beside from_avro.
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
    """The values before they are encoded."""
    random = Random(7)
    return [
        {
            "id": 1 + n * 37,  # not 0, which Protobuf leaves out, so that it is null to Spark
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
    """In the format avro, by fastavro, or protobuf, by Google's library."""
    return _avro_values() if name == "avro" else _protobuf_values()


def _avro_values() -> list[bytes]:
    import io

    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    found = []
    for row in rows():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def descriptor_set() -> Path:
    """The file that from_protobuf and `descFilePath` take."""
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
    found = []
    for row in rows():
        made = order(**{**row, "at": None})
        made.at.FromMicroseconds(row["at"])
        found.append(made.SerializeToString())
    return found


def spark_avro() -> Path:
    """The jar with from_avro, from Maven, once."""
    return maven_jar(SPARK_AVRO, home() / "jars")


def spark_protobuf(place: Path) -> str:
    """The class path with from_protobuf: KAFKALOG_SPARK_PROTOBUF, or the jar from Maven, once, into a directory.
    Raises RuntimeError with Maven's words where there is neither."""
    return os.environ.get("KAFKALOG_SPARK_PROTOBUF") or str(maven_jar(SPARK_PROTOBUF, place))


def avro_function() -> str:
    """from_avro of `value`, as an expression."""
    return f"from_avro(value, '{json.dumps(SCHEMA)}', map('mode', 'PERMISSIVE'))"


def protobuf_function() -> str:
    """from_protobuf of `value`, as an expression."""
    return f"from_protobuf(value, 'Order', '{descriptor_set()}', map('mode', 'PERMISSIVE'))"
