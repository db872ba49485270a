"""Record random values that Confluent's Python serializers write, and the results of its deserializers.

    python -m tests.typed.record_confluent_values 200       # replace tests/golden/confluent_values.json.gz

It needs confluent-kafka with its extras avro, json, protobuf and schemaregistry. The registry is that of the tests. It
stores Protobuf either as the client registers it (base64) or as the text that Confluent's registry makes of it.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.typed.confluent_values import RECORDED, TOPIC, Json, Recording, columns_of, comparable
from tests.typed.proto_printer import text_of
from tests.typed.random_rows import random_float, random_text
from tests.typed.registry_server import RegistryServer

_CONTEXT = ":.prod:"
_SHORTEST = 6  # bytes of a value that the deserializers take, also where the id is in a header


@dataclass
class Writer:
    """Writes values of a schema, and reads them with Confluent's deserializer. write(value, context) -> bytes."""

    draw: Callable[[Random], Any]
    write: dict[bool, Callable[[Any, Any], bytes]]
    """By whether the id is in a header."""
    read: Callable[[bytes, Any], Any]


ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"], "default": None}],
}
ORDER: dict[str, Json] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "int"},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "amount", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "MID", "HIGH"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 5}},
        {"name": "texts", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "to", "type": ["null", ADDRESS]},
        {"name": "others", "type": {"type": "array", "items": "shop.Address"}},
    ],
}
LATER_ORDER = {
    **ORDER,
    "fields": [
        {"name": "added", "type": ["null", "string"], "default": None},
        *(one for one in ORDER["fields"][::-1] if one["name"] not in ("n", "raw", "others", "to")),
        {"name": "n", "type": "long"},
        {"name": "more", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        ORDER["fields"][-2],
        ORDER["fields"][-1],
    ],
}
REFERRING = {
    "type": "record",
    "name": "Parcel",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "shop.Address"},
               {"name": "by", "type": {"type": "map", "values": "shop.Address"}}],
}  # fmt: skip
CUSTOMER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Customer",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "score": {"type": "number"},
        "flag": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
    },
}
CUSTOMER_DDL = (
    "id bigint, name string, score double, flag boolean, tags array<string>, address struct<city: string, zip: bigint>"
)
PROTOS = {
    "shop/item.proto": """syntax = "proto3"; package shop;
message Item { string sku = 1; int32 n = 2; repeated double prices = 3; map<string, double> parts = 4; }
""",
    "shop/order.proto": """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; A = 1; NEGATIVE = -5; }
message Order {
  int64 id = 1; string user = 2; double amount = 3; Kind kind = 4; repeated Line lines = 5;
  map<string, int64> counts = 6; optional int32 maybe = 7; google.protobuf.Timestamp at = 8; bytes raw = 9;
  oneof one { string text = 10; int32 number = 11; Line line = 12; }
  uint32 u32 = 13; uint64 u64 = 14; sint32 s32 = 15; sint64 s64 = 16; fixed32 f32 = 17; fixed64 f64 = 18;
  sfixed32 sf32 = 19; sfixed64 sf64 = 20; bool flag = 21; float ratio = 22; map<int32, Line> by_number = 23;
  repeated Kind kinds = 24; repeated string texts = 26; repeated sint64 packed = 2000;
  message Line {
    string sku = 1; sint32 n = 2; map<string, bool> flags = 3; message Part { int64 id = 1; } Part part = 4;
  }
}
message Refund { int64 id = 1; map<string, double> by_reason = 2; Order.Line line = 3; }
""",
    "shop/basket.proto": """syntax = "proto3"; package shop; import "shop/item.proto"; import "shop/order.proto";
message Basket {
  int64 id = 1; repeated Item items = 2; map<string, Order> orders = 3; Order.Line line = 4; Kind kind = 5;
}
""",
    "shop/known.proto": """syntax = "proto3"; package shop;
import "google/type/date.proto"; import "google/type/money.proto"; import "google/type/latlng.proto";
import "google/type/timeofday.proto"; import "google/type/dayofweek.proto"; import "google/type/color.proto";
import "google/type/postal_address.proto"; import "google/type/fraction.proto"; import "google/type/month.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/source_context.proto"; import "confluent/meta.proto";
import "confluent/type/decimal.proto"; import "google/type/quaternion.proto"; import "google/protobuf/field_mask.proto";
message Known {
  google.type.Date date = 1; google.type.Money money = 2; google.type.LatLng place = 3; google.type.TimeOfDay time = 4;
  google.type.DayOfWeek day = 5; google.type.Color color = 6; repeated google.type.PostalAddress addresses = 7;
  map<string, google.type.Fraction> fractions = 8; google.type.Month month = 9; google.protobuf.Int64Value many = 10;
  google.protobuf.SourceContext source = 11; confluent.type.Decimal decimal = 12; google.type.Quaternion turn = 13;
  google.protobuf.FieldMask mask = 14; int64 id = 15 [(confluent.field_meta) = {doc: "an option"}];
}
""",
}


def recording_of(kind: str, seed: int, count: int) -> Recording:
    """A recording of `count` values of one of KINDS."""
    return _record(kind, Random(f"{seed} {kind}"), count, **KINDS[kind])


def _record(
    kind: str, rng: Random, count: int, make: Callable[..., list[Writer]], headers: tuple[bool, ...] = (False, True),
    format: str = "avro", subject: str = f"{TOPIC}-value", kept_as: Callable[[str], str] = str,
    message: str | None = None, ddl: str | None = None,
) -> Recording:  # fmt: skip
    """headers: if ids may be in headers, and if they may be before values; drawn for each value."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    options = {"subject": subject} if message is None else {"subject": subject, "messagename": message}
    result = Recording(kind, f"confluent-{format}", options, ddl)
    with RegistryServer(kept_as=kept_as) as registry:
        for i in range(3 if subject.startswith(":") else 0):  # the same ids in the default context
            registry.register(f"{TOPIC}-value", json.dumps({"type": "record", "name": f"R{i}", "fields": []}))
        client = SchemaRegistryClient({"url": registry.url})
        strategy = {"subject.name.strategy": lambda context, name: subject}
        writers = make(client, strategy)
        read_back: list[Any] = []
        while len(read_back) < count:
            writer = rng.choice(writers)
            context = SerializationContext(TOPIC, MessageField.VALUE, [])
            value = writer.write[rng.choice(headers)](writer.draw(rng), context)
            if len(value) < _SHORTEST:
                continue
            ids = [content for name, content in context.headers if name == "__value_schema_id"]
            result.values.append(base64.b64encode(value).decode())
            result.ids_in_headers.append(base64.b64encode(ids[0]).decode() if ids else None)
            read_back.append(writer.read(value, context))
        result.registry = [[key.decode(), content.decode()] for key, content in registry.records()]
    type_ = pa.struct(list(columns_of(result)))
    result.expected = [comparable(_row(one, type_), type_) for one in read_back]
    return result


def _row(value: Any, type_: pa.DataType) -> Any:
    """The value that a deserializer returned, as a row. A Protobuf message becomes what from_protobuf makes of it."""
    if hasattr(value, "DESCRIPTOR"):
        from tests.typed.protobuf.test_protobuf import expected

        return _with_times(expected(value, type_), type_)
    return _filled(value, type_)


def _with_times(value: Any, type_: pa.DataType) -> Any:
    """A row with microseconds as timestamps."""
    if value is None or not (pa.types.is_timestamp(type_) or isinstance(value, dict | list)):
        return value
    if pa.types.is_timestamp(type_):
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=value)
    if pa.types.is_struct(type_):
        return {one.name: _with_times(value[one.name], one.type) for one in type_}
    if pa.types.is_map(type_):
        return {key: _with_times(one, type_.item_type) for key, one in value.items()}
    return [_with_times(one, type_.value_type) for one in value]


def _filled(value: Any, type_: pa.DataType) -> Any:
    """A value of JSON with null for each field that is absent."""
    if isinstance(value, dict) and pa.types.is_struct(type_):
        return {one.name: _filled(value.get(one.name), one.type) for one in type_}
    if isinstance(value, list):
        return [_filled(one, type_.value_type) for one in value]
    return float(value) if pa.types.is_floating(type_) and value is not None else value


# Writers.


def _both(make: Callable[[dict[str, Any]], Any], conf: dict[str, Any]) -> dict[bool, Any]:
    """A serializer that writes ids before values, and one that writes them into headers."""
    from confluent_kafka.schema_registry import header_schema_id_serializer

    return {False: make(conf), True: make({**conf, "schema.id.serializer": header_schema_id_serializer})}


def _avro(client: Any, conf: dict[str, Any], schemas: tuple[Json, ...] = (ORDER, LATER_ORDER)) -> list[Writer]:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    references, named = [], {"shop.Address": ADDRESS}
    if schemas == (REFERRING,):
        subject = conf["subject.name.strategy"](None, None)
        name = f"{subject[: subject.rfind(':') + 1]}address"
        client.register_schema(name, Schema(json.dumps(ADDRESS), "AVRO"))
        references.append(SchemaReference("shop.Address", "address", 1))
    made = []
    for json_schema in schemas:
        schema = Schema(json.dumps(json_schema), "AVRO", references)
        both = _both(lambda given, schema=schema: AvroSerializer(client, schema, None, given), conf)  # type: ignore[misc]
        reader = None if references else json.dumps(schemas[-1])
        read = AvroDeserializer(client, reader, None, False, conf)
        made.append(Writer(lambda rng, one=json_schema: _avro_value(rng, one, named), both, read))  # type: ignore[misc]
    for writer, json_schema in zip(made, schemas, strict=True):  # the reader's is the latest: register in order
        from confluent_kafka.serialization import MessageField, SerializationContext

        for write in writer.write.values():
            write(_avro_value(Random(0), json_schema, named), SerializationContext(TOPIC, MessageField.VALUE, []))
    return made


def _avro_value(rng: Random, schema: Json, named: dict[str, Json]) -> Any:
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        return _avro_value(rng, rng.choice(schema), named)
    match schema["type"], schema.get("logicalType"):
        case "record", _:
            return {one["name"]: _avro_value(rng, one["type"], named) for one in schema["fields"]}
        case "array", _:
            return [_avro_value(rng, schema["items"], named) for _ in range(rng.randint(0, 4))]
        case "map", _:
            return {random_text(rng): _avro_value(rng, schema["values"], named) for _ in range(rng.randint(0, 3))}
        case "enum", _:
            return rng.choice(schema["symbols"])
        case "fixed", _:
            return rng.randbytes(schema["size"])
        case "int", "date":
            return datetime.date(1970, 1, 1) + datetime.timedelta(rng.randint(-100_000, 100_000))
        case "long", "timestamp-millis" | "timestamp-micros":
            step = 1 if schema["logicalType"] == "timestamp-micros" else 1000
            micros = datetime.timedelta(microseconds=rng.randint(-(10**12), 10**13) * step)
            return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + micros
        case "bytes", "decimal":
            return Decimal(rng.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-schema["scale"])
        case "string", "uuid":
            return str(uuid.UUID(bytes=rng.randbytes(16)))
        case "null", _:
            return None
        case "boolean", _:
            return rng.random() < 0.5
        case "int" | "long" as name, _:
            bits = 31 if name == "int" else 63
            return rng.choice([0, -1, 2**bits - 1, -(2**bits), rng.randint(-(2**bits), 2**bits - 1)])
        case "float" | "double" as name, _:
            return random_float(rng, single=name == "float")
        case "bytes", _:
            return rng.randbytes(rng.randint(0, 9))
    return random_text(rng)


def _json(client: Any, conf: dict[str, Any]) -> list[Writer]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    text = json.dumps(CUSTOMER)
    both = _both(lambda given: JSONSerializer(text, client, None, given), conf)
    return [Writer(_customer, both, JSONDeserializer(text, None, client, conf))]


def _customer(rng: Random) -> Json:
    whole = {
        "id": rng.randint(-(2**63), 2**63 - 1),
        "name": rng.choice([None, random_text(rng)]),
        "score": rng.choice([rng.random(), round(rng.random() * 10**6, 3), 10.0 ** rng.randint(-30, 30), 3]),
        "flag": rng.random() < 0.5,
        "tags": [random_text(rng) for _ in range(rng.randint(0, 3))],
        "address": {"city": random_text(rng), "zip": rng.randint(0, 99999)},
    }
    return {name: value for name, value in whole.items() if rng.random() < 0.9}


def _protobuf(client: Any, conf: dict[str, Any], *names: str) -> list[Writer]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf import message_factory

    pool = _pool()
    made = []
    for name in names:
        of = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        both = _both(lambda given, of=of: ProtobufSerializer(of, client, given), conf)  # type: ignore[misc]
        made.append(Writer(lambda rng, of=of: _message(rng, of()), both, ProtobufDeserializer(of, conf, client)))  # type: ignore[misc]
    return made


def _pool() -> Any:
    """The pool of PROTOS, which protoc compiles with the known types."""
    from google.protobuf import descriptor_pb2

    from kafkalog_spark.typed.protobuf.descriptors import pool_of
    from kafkalog_spark.typed.protobuf.known_types import known_files

    with tempfile.TemporaryDirectory() as home:
        for name, text in PROTOS.items():
            path = Path(home, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        known = descriptor_pb2.FileDescriptorSet(file=known_files().values())
        Path(home, "known").write_bytes(known.SerializeToString())
        run = ["-I.", "--descriptor_set_in=known", "--include_imports", "-o", "all", *PROTOS]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *run], cwd=home, check=True)
        return pool_of(Path(home, "all").read_bytes(), "the protos")[0]


def _message(rng: Random, message: Any, depth: int = 4) -> Any:
    """A message with random fields."""
    from kafkalog_spark.typed.protobuf.field_types import is_map, is_repeated

    for one in message.DESCRIPTOR.fields:
        if rng.random() < 0.35:
            continue
        if is_map(one):
            key, value = one.message_type.fields_by_number[1], one.message_type.fields_by_number[2]
            for _ in range(rng.randint(0, 3)):
                at = _scalar(rng, key)
                if value.message_type is not None:
                    _message(rng, getattr(message, one.name)[at], depth - 1) if depth else None
                else:
                    getattr(message, one.name)[at] = _scalar(rng, value)
        elif is_repeated(one):
            for _ in range(rng.randint(0, 3)):
                if one.message_type is not None:
                    _message(rng, getattr(message, one.name).add(), depth - 1) if depth else None
                else:
                    getattr(message, one.name).append(_scalar(rng, one))
        elif one.message_type is None:
            setattr(message, one.name, _scalar(rng, one))
        elif depth:
            inner = getattr(message, one.name)
            inner.SetInParent()
            _timestamp(rng, inner) if one.message_type.name == "Timestamp" else _message(rng, inner, depth - 1)
    return message


def _timestamp(rng: Random, message: Any) -> None:
    message.seconds, message.nanos = rng.randint(-(10**9), 10**10), rng.randrange(10**9)


def _scalar(rng: Random, field: Any) -> Any:
    if field.enum_type is not None:
        return rng.choice([*(value.number for value in field.enum_type.values), 77])
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return random_float(rng, single=field.cpp_type == field.CPPTYPE_FLOAT)
        case field.CPPTYPE_STRING:
            return rng.randbytes(rng.randint(0, 9)) if field.type == field.TYPE_BYTES else random_text(rng)
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    number = rng.choice([0, 1, 2**bits - 1, 2 ** (bits - 1), rng.getrandbits(bits), rng.getrandbits(7)])
    signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    return number - 2**bits if signed and number >> (bits - 1) else number


def _of(*names: str) -> Callable[[Any, dict[str, Any]], list[Writer]]:
    return lambda client, conf: _protobuf(client, conf, *names)


_PROD = f"{_CONTEXT}{TOPIC}-value"
_ORDER = {"make": _of("shop.Order"), "format": "protobuf", "message": "shop.Order"}
KINDS: dict[str, dict[str, Any]] = {
    "avro-prefix": {"make": _avro, "headers": (False,)},
    "avro-header": {"make": _avro, "headers": (True,)},
    "avro-context": {"make": _avro, "subject": _PROD},
    "avro-references": {"make": lambda client, conf: _avro(client, conf, (REFERRING,))},
    "avro-references-context": {"make": lambda client, conf: _avro(client, conf, (REFERRING,)), "subject": _PROD},
    "json-prefix": {"make": _json, "headers": (False,), "format": "json", "ddl": CUSTOMER_DDL},
    "json-header": {"make": _json, "headers": (True,), "format": "json", "ddl": CUSTOMER_DDL},
    "json-context": {"make": _json, "format": "json", "ddl": CUSTOMER_DDL, "subject": _PROD},
    "protobuf-prefix": {**_ORDER, "headers": (False,)},
    "protobuf-header": {**_ORDER, "headers": (True,)},
    "protobuf-context": {**_ORDER, "subject": _PROD},
    "protobuf-text": {**_ORDER, "kept_as": text_of},
    "protobuf-second": {"make": _of("shop.Refund"), "format": "protobuf", "message": "shop.Refund"},
    "protobuf-nested": {"make": _of("shop.Order.Line"), "format": "protobuf", "message": "shop.Order.Line"},
    "protobuf-nested-text": {
        "make": _of("shop.Order.Line.Part"), "format": "protobuf", "message": "shop.Order.Line.Part", "kept_as": text_of
    },
    "protobuf-references": {"make": _of("shop.Basket"), "format": "protobuf"},
    "protobuf-references-text": {"make": _of("shop.Basket"), "format": "protobuf", "kept_as": text_of},
    "protobuf-known-types": {"make": _of("shop.Known"), "format": "protobuf"},
    "protobuf-known-types-text": {"make": _of("shop.Known"), "format": "protobuf", "kept_as": text_of},
}  # fmt: skip


def main() -> None:
    """Record the given number of values of each kind."""
    with RECORDED.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        for kind in KINDS:
            packed.write(json.dumps(asdict(recording_of(kind, 1, int(sys.argv[1])))).encode() + b"\n")


if __name__ == "__main__":
    main()
