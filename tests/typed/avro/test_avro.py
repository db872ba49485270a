"""Decoding of Avro values: types, schema resolution, hostile values; fastavro writes the values."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.schema import parse_schema
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources
from tests.typed.canonical import canonical
from tests.typed.given_formats import of_format
from tests.typed.random_avro import by_fastavro, cases, varint

schema, decoder = of_format("avro")

Json = Any
UTC = datetime.UTC


def record(*fields: tuple[str, Json] | Json) -> Json:
    made = [one if isinstance(one, dict) else {"name": one[0], "type": one[1]} for one in fields]
    return {"type": "record", "name": "R", "fields": made}


def decode(writer: Json, values: list[bytes | None], reader: Json = None, **options: str) -> Decoded:
    given = {"schema": json.dumps(writer), **options}
    if reader is not None:
        given["avroschema"] = json.dumps(reader)
    return decoder(given, schema(given)).decode(pa.array(values, pa.binary()))


def one(writer: Json, value: Any, reader: Json = None, **options: str) -> Any:
    """What one value, written by fastavro, is read as."""
    found = decode(writer, [by_fastavro(writer, value)], reader, **options)
    assert found.bad is None
    found.columns.validate(full=True)
    return found.columns[0].as_py()


@pytest.mark.parametrize(
    ("type_", "value", "arrow"),
    [
        ("boolean", True, pa.bool_()),
        ("int", -(2**31), pa.int32()),
        ("long", 2**63 - 1, pa.int64()),
        ("float", 1.5, pa.float32()),
        ("double", -0.1, pa.float64()),
        ("bytes", b"\x00\xff", pa.binary()),
        ("string", "grün", pa.string()),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string()),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", pa.binary()),
        ({"type": "array", "items": ["null", "int"]}, [1, None, 3], pa.list_(pa.field("element", pa.int32()))),
        ({"type": "int", "logicalType": "date"}, datetime.date(1969, 12, 31), pa.date32()),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime.datetime(1960, 1, 2, 3, 4, 5, 6, UTC),
            pa.timestamp("us", "UTC"),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
            pa.timestamp("us"),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
            decimal.Decimal("-" + "9" * 36 + ".99"),
            pa.decimal128(38, 2),
        ),
        (
            {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 11, "scale": 3},
            decimal.Decimal("-12345678.901"),
            pa.decimal128(11, 3),
        ),
        (["null", record(("x", "long"), ("y", ["null", "string"]))], {"x": 1, "y": None}, None),
    ],
)
def test_every_type_is_read_as_spark_reads_it(type_: Json, value: Any, arrow: pa.DataType | None) -> None:
    writer = {"type": "record", "name": "Top", "fields": [{"name": "a", "type": type_}, {"name": "b", "type": "long"}]}
    assert one(writer, {"a": value, "b": 7}) == {"a": value, "b": 7}
    found = schema({"schema": json.dumps(writer)}).field("a").type
    assert arrow is None or found == arrow


@pytest.mark.parametrize(
    ("named", "value", "read"),
    [({"type": "fixed", "size": 2}, b"\1\2", b"\1\2"), ({"type": "enum", "symbols": ["A", "B"]}, b"\2", "B")],
)
@pytest.mark.parametrize(("reader", "is_read"), [("d.N1", True), ("N1", True), ("c.N2", False)])
def test_fixed_and_enum_match_by_their_names_without_namespaces(
    named: Json, value: bytes, read: Any, reader: str, is_read: bool
) -> None:
    """As from_avro of Spark 4.3 has it (Avro 1.12)."""
    writer = record(("x", {**named, "name": "c.N1"}))
    found = decode(writer, [value], record(("x", {**named, "name": reader})))
    in_union = record(("x", [{**named, "name": "c.N1"}, "null"]))
    of_union = decode(in_union, [b"\0" + value], record(("x", [{**named, "name": reader}, "null"])))
    for one in (found, of_union):
        assert (one.bad is None) == is_read
        assert not is_read or one.columns[0].as_py() == {"x": read}


def test_last_of_duplicate_map_keys_counts() -> None:
    many = [(f"k{i % 30}", i) for i in range(60)]
    for entries in ([("a", 1), ("b", 2), ("a", 3)], many):
        body = b"".join(varint(len(key)) + key.encode() + varint(value) for key, value in entries)
        found = decode(record(("m", {"type": "map", "values": "int"})), [varint(len(entries)) + body + b"\0"])
        assert dict(found.columns[0].as_py()["m"]) == dict(entries)
        assert len(found.columns[0].as_py()["m"]) == len(dict(entries))


def test_a_union_of_several_types_is_a_struct_of_its_members() -> None:
    union = ["null", "string", {"type": "array", "items": "int"}, {"type": "enum", "name": "x.E", "symbols": ["S"]}]
    assert one(record(("u", union)), {"u": [1, 2]})["u"] == {"member0": None, "member1": [1, 2], "member2": None}
    assert one(record(("u", union)), {"u": None})["u"] is None
    named = one(record(("u", union)), {"u": "text"}, enablestableidentifiersforuniontype="true")
    assert named["u"] == {"member_string": "text", "member_array": None, "member_E": None}
    assert one(record(("u", ["int", "long"])), {"u": 5}) == {"u": 5}
    assert one(record(("u", ["float", "double"])), {"u": 0.5}) == {"u": 0.5}


@pytest.mark.parametrize("logical", ["date", "time-millis"])
@pytest.mark.parametrize(
    "unit", ["timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "time-micros"]
)
@pytest.mark.parametrize("null", [[], ["null"]])
def test_union_of_int_and_long_ignores_logical_types(logical: str, unit: str, null: list[str]) -> None:
    """As from_avro has it: a bigint, of a default as well, and without a limit of timestamps."""
    long, int_ = {"type": "long", "logicalType": unit}, {"type": "int", "logicalType": logical}
    writer = record(("u", [long, *null, int_]))
    found = decode(writer, [varint(0) + varint(2**63 - 1), varint(1 + len(null)) + varint(7)])
    assert found.columns.to_pylist() == [{"u": 2**63 - 1}, {"u": 7}]
    added = {"name": "u", "type": [long, *null, int_], "default": 1_700_000_000_000}
    reader = {**record(("x", "int")), "fields": [{"name": "x", "type": "int"}, added]}
    assert decode(record(("x", "int")), [varint(1)], reader).columns.to_pylist() == [{"x": 1, "u": 1_700_000_000_000}]


@pytest.mark.parametrize(
    ("type_", "default", "read"),
    [
        (["int", "long"], -446_778_998_977, -102_400_193),
        ("int", 2**31, -(2**31)),
        (["int", "double"], 1.5, {"member0": 1, "member1": None}),
        (["int", "long"], 1e20, 2**31 - 1),
        ("long", 2**63, -(2**63)),
        ({"type": "fixed", "name": "F", "size": 3}, "a", b"a\0\0"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u0100a", b"?"),
        ([{"type": "map", "values": "int"}, "null"], None, []),
        ([{**record({"name": "k", "type": "int", "default": 1}), "name": "Inner"}, "null"], None, {"k": 1}),
        ([{**record(("k", "int")), "name": "Inner"}, "null"], None, "bad"),
    ],
)
def test_invalid_default_is_converted_as_in_java(type_: Json, default: Any, read: Any) -> None:
    """Seen in from_avro of Spark 4.3: the first branch that takes a number or an object takes the default."""
    added = {"name": "a", "type": type_, "default": default}
    reader = {**record(("x", "int")), "fields": [{"name": "x", "type": "int"}, added]}
    found = decode(record(("x", "int")), [varint(1)], reader)
    assert found.columns.to_pylist() == [{"x": None, "a": None} if read == "bad" else {"x": 1, "a": read}]


def test_an_empty_array_is_the_default_of_a_union() -> None:
    """Java's reader fails instead (Avro 1.12: "Not an array")."""
    added = {"name": "a", "type": [{"type": "array", "items": "int"}, "null"], "default": []}
    reader = {**record(("x", "int")), "fields": [{"name": "x", "type": "int"}, added]}
    assert decode(record(("x", "int")), [varint(1)], reader).columns.to_pylist() == [{"x": 1, "a": []}]


def test_a_union_of_null_alone_is_a_struct_without_fields_that_is_null() -> None:
    writer = record(("n", ["null"]), ("l", {"type": "array", "items": ["null"]}), ("x", "int"))
    assert schema({"schema": json.dumps(writer)}).field("n").type == pa.struct([])
    found = decode(writer, [varint(0) + varint(2) + 2 * varint(0) + b"\0" + varint(5)])
    assert found.columns.to_pylist() == [{"n": None, "l": [None, None], "x": 5}]


def test_schemas_evolve_by_avros_rules() -> None:
    writer = record(("gone", {"type": "map", "values": record(("z", "bytes"))}), ("old", "int"), ("kept", "string"))
    reader = record(
        {"name": "added", "type": {"type": "array", "items": "string"}, "default": ["x", "y"]},
        {"name": "kept", "type": ["null", "bytes"]},
        {"name": "new", "type": "double", "aliases": ["old"]},
        {"name": "nothing", "type": ["null", "R"], "default": None},
    )
    value = {"gone": {"k": {"z": b"1"}}, "old": 3, "kept": "v"}
    writer["fields"][0]["type"]["values"]["name"] = "Inner"
    found = one(writer, value, reader, recursivefieldmaxdepth="1")
    assert found == {"added": ["x", "y"], "kept": b"v", "new": 3.0}


def test_null_after_an_enum_is_not_a_default_as_in_java() -> None:
    """Java takes a union's default for the first branch that might be it, and an enum might be anything."""
    enum = {"type": "enum", "name": "E", "symbols": ["S0"]}
    for branches, bad in ((["null", enum], False), ([enum, "null"], True)):
        reader = record(("a", "int"), {"name": "e", "type": branches, "default": None})
        found = decode(record(("a", "int")), [b"\x02"], reader)
        assert (found.bad is not None) == bad
        assert found.columns[0].as_py() == {"a": None if bad else 1, "e": None}


def test_value_that_the_reader_schema_cannot_represent_is_malformed() -> None:
    writer = record(("a", ["int", "string"]))
    found = decode(writer, [by_fastavro(writer, {"a": 1}), by_fastavro(writer, {"a": "x"})], record(("a", "long")))
    assert found.columns.to_pylist() == [{"a": 1}, {"a": None}]
    assert found.bad is not None
    assert found.bad.tolist() == [False, True]
    assert found.why(1) == "a at byte 1 of the value: the reader schema cannot represent it"


def test_a_decimal_of_kafka_connects_default_precision_is_refused_by_name_and_read_with_a_reader_schema() -> None:
    """Connect writes precision 64 where the source does not know it (CONNECT_AVRO_DECIMAL_PRECISION_DEFAULT)."""

    def order(amount: Json) -> Json:
        return record(
            ("id", "int"),
            ("lines", {"type": "array", "items": {**record(("amount", ["null", amount])), "name": "Line"}}),
        )

    written = order({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2})
    value = varint(7) + varint(1) + b"\x02" + b"\x04\x01\x00" + b"\x00"
    with pytest.raises(
        OptionError, match=r"^value\.lines\.amount is an Avro decimal with precision 64; .* 38; .*avroSc"
    ):
        decode(written, [value])
    narrow = order({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2})
    for reader, read in ((narrow, decimal.Decimal("2.56")), (order("bytes"), b"\x01\x00")):
        found = decode(written, [value], reader)
        assert found.bad is None
        assert found.columns.to_pylist() == [{"id": 7, "lines": [{"amount": read}]}]


def test_recursive_schema_is_refused_without_a_maximum_depth() -> None:
    node = record(("id", "int"), ("next", ["null", "R"]))
    with pytest.raises(OptionError, match=r"R contains itself.*recursiveFieldMaxDepth"):
        schema({"schema": json.dumps(node)})
    value = {"id": 1, "next": {"id": 2, "next": {"id": 3, "next": None}}}
    assert one(node, value, recursivefieldmaxdepth="1") == {"id": 1}
    assert one(node, value, recursivefieldmaxdepth="2") == {"id": 1, "next": {"id": 2}}
    deep = b"\x02\x02" * 100_000 + b"\x02\x00"
    found = decode(node, [deep, by_fastavro(node, value)], recursivefieldmaxdepth="2")
    assert found.bad is not None
    assert found.bad.tolist() == [True, False]
    assert "nested too deeply" in found.why(0)


ARRAY = record(("a", {"type": "array", "items": "long"}))
HOSTILE = {
    "a string longer than the value": (record(("s", "string")), varint(2**40) + b"abc", "a length"),
    "a length below 0": (record(("s", "bytes")), varint(-5) + b"abcdef", "a length"),
    "a count that lies": (ARRAY, varint(2**62) + b"\x02", "a number that does not end"),
    "a count below what can be turned": (ARRAY, varint(-(2**63)) + b"\0", "a number of elements below 0"),
    "nulls without end": (record(("n", {"type": "array", "items": "null"})), varint(2**40), "take no bytes"),
    "a number of eleven bytes": (record(("n", "long")), b"\xff" * 10 + b"\x01", "does not end"),
    "an int of six bytes": (record(("n", "int")), b"\xff" * 5 + b"\x01", "does not end"),
    "a branch that there is not": (record(("u", ["null", "int"])), b"\x04\x02", "a branch"),
    "a symbol that there is not": (record(("e", {"type": "enum", "name": "E", "symbols": ["A"]})), b"\x02", "a symbol"),
    "a decimal of no bytes": (
        record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 5})),
        b"\0",
        "a decimal",
    ),
    "a decimal with too many digits": (
        record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 30})),
        varint(16) + b"\x7f" * 16,
        "a decimal",
    ),
    "milliseconds that overflow": (
        record(("t", {"type": "long", "logicalType": "timestamp-millis"})),
        varint(2**62),
        "milliseconds",
    ),
    "nothing at all": (record(("d", "double")), b"", "the value ends before it"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_value_is_malformed_and_its_neighbours_are_read(name: str) -> None:
    writer, value, why = HOSTILE[name]
    rng = random.Random(1)
    good = by_fastavro(writer, _any_of(writer, rng))
    found = decode(writer, [good, value, None, good])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False, False]
    assert why in found.why(1)
    rows = found.columns.to_pylist()
    assert rows[1] == dict.fromkeys(rows[0])
    assert rows[2] is None
    assert rows[3] == rows[0]


def _any_of(writer: Json, rng: random.Random) -> Json:
    type_ = writer["fields"][0]["type"]
    plain = {"string": "s", "bytes": b"b", "long": 1, "int": 2, "double": 0.5}
    if isinstance(type_, str):
        return {writer["fields"][0]["name"]: plain[type_]}
    if isinstance(type_, list):
        return {writer["fields"][0]["name"]: None}
    if "logicalType" in type_:
        value: Any = decimal.Decimal(1) if type_["type"] == "bytes" else datetime.datetime(2020, 1, 1, tzinfo=UTC)
        return {writer["fields"][0]["name"]: value}
    return {writer["fields"][0]["name"]: [] if type_["type"] == "array" else "A"}


def test_bytes_after_a_value_are_ignored_as_in_spark() -> None:
    assert decode(record(("n", "int")), [b"\x02trailing"]).columns.to_pylist() == [{"n": 1}]


def test_a_large_value_makes_columns_grow() -> None:
    writer = record(("a", {"type": "array", "items": {"type": "map", "values": "string"}}), ("s", "string"))
    value = {"a": [{f"k{i}": "v" * 50} for i in range(20_000)], "s": "x" * 3_000_000}
    found = one(writer, value)
    assert found["s"] == value["s"]
    assert [dict(entries) for entries in found["a"]] == value["a"]


def test_random_and_damaged_values_give_valid_columns() -> None:
    for case in cases(20, 30, 50):
        found = decode(case.writer, list(case.values), case.reader)
        found.columns.validate()
        assert len(found.columns) == len(case.values)
        alone = [decode(case.writer, [value], case.reader) for value in case.values[:10]]
        rows = canonical(found.columns)
        assert [canonical(one.columns)[0] for one in alone] == rows[:10]  # whatever its neighbours are


def test_columns_that_are_not_projected_are_validated() -> None:
    """Spark decodes all of a value, so one that is broken elsewhere is bad for every column."""
    writer = record(("a", "int"), ("u", ["null", "int"]), ("s", "string"))
    wanted = decoder({"schema": json.dumps(writer)}, pa.schema([("a", pa.int32())]))
    found = wanted.decode(pa.array([b"\x02\x00\x00", b"\x02\x06\x00"], pa.binary()))
    assert found.columns.to_pylist() == [{"a": 1}, {"a": None}]
    with pytest.raises(OptionError, match=r"no field b.*they have a, u, s"):
        decoder({"schema": json.dumps(writer)}, pa.schema([("b", pa.int32())]))
    with pytest.raises(OptionError, match="a has type int32 in the schema of the values, not int64"):
        decoder({"schema": json.dumps(writer)}, pa.schema([("a", pa.int64())]))


def test_comments_in_a_schema_are_ignored_as_in_java(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(
        r"""/* Licensed to "nobody" under // no license */
        // what an order is
        {"type": "record", /* "name": "Q", */ "name": "R", // and its fields:
         "fields": [{"name": "a", "doc": "see https://example.org/* \\\" // */", "type": "int"}]}"""
    )
    assert parse_schema(file.read_text()).fields[0].name == "a"
    read = ResolvedFormat.of("avro", {"schema": str(file)}, SchemaSources("value", ("t",), lambda topic: []))
    assert read.decoder(read.schema()).decode(pa.array([varint(7)], pa.binary())).columns.to_pylist() == [{"a": 7}]
    for broken in ('{"type": "int" /* open', '{"type": "int" / "x": 1}', '{"type": "int // }'):
        with pytest.raises(OptionError, match="not JSON"):
            parse_schema(broken)


def test_schema_with_endless_comments_is_parsed_in_linear_time() -> None:
    for hostile in ("/*" * 500_000, '{"' + '\\"' * 500_000, "{" + '"/*' * 300_001):
        with pytest.raises(OptionError):
            parse_schema(hostile)


@pytest.mark.parametrize(
    "named",
    [
        {"namespace": "db-1.inventory", "name": "Value"},
        {"name": "db-1.inventory.Value"},
        {"namespace": "org.example.Event$", "name": "Value", "aliases": ["4 2.Old"]},
    ],
)
def test_namespace_may_be_any_text_as_in_a_registry(named: dict[str, Json]) -> None:
    """Debezium puts the name of its server there; the registry and Java before Avro 1.12.1 do not look at it."""
    inner = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    writer = {"type": "record", **named, "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "Line"}]}
    again = {"name": "c", "aliases": ["b-1", "b"], "type": "Line"}
    reader = {"type": "record", **named, "fields": [{"name": "a", "type": inner}, again]}
    found = decode(writer, [varint(1) + varint(2)], reader)
    assert found.bad is None
    assert found.columns.to_pylist() == [{"a": {"n": 1}, "c": {"n": 2}}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"type": "record", "name": "a-b", "fields": []}', "name 'a-b'"),
        ('{"type": "record", "name": "a.b-c", "fields": []}', "name 'a.b-c'"),
        ('{"type": "record", "name": ".R", "fields": []}', "name '.R'"),
        ('{"type": "record", "name": "R", "aliases": ["a-b"], "fields": []}', "aliases"),
        ('{"type": "record"', "not JSON"),
        ('{"type": "record", "name": "R"}', "expected a list"),
        ('{"type": "enum", "name": "1x", "symbols": []}', "name '1x'"),
        ('{"type": "array"}', "without `items`"),
        ('["int", "int"]', "has int twice"),
        ('["null", ["int"]]', "union that contains a union"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Unknown"}]}', "neither before it nor"),
        ('["int", "string"]', "union of several types"),
        ("/no/such/file.avsc", "cannot be read"),
    ],
)
def test_invalid_schema_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        schema({"schema": text})


def test_unsupported_option_of_from_avro_is_named() -> None:
    text = json.dumps(record(("a", "int")))
    for option, value in (("datetimerebasemode", "LEGACY"), ("recursivefieldmaxdepth", "16")):
        with pytest.raises(OptionError, match="(?i)" + option):
            decoder({"schema": text, option: value}, pa.schema([("a", pa.int32())]))


def test_schema_files_are_read_when_a_query_is_planned(tmp_path: Any) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(record(("a", "int"))))
    sources = SchemaSources("value", ("t",), lambda topic: [])
    found = ResolvedFormat.of("avro", {"schema": str(path), "avroschemaurl": f"file://{path}"}, sources)
    path.unlink()
    assert found.schema() == pa.schema([("a", pa.int32())])


def test_java_strings_replace_malformed_utf8() -> None:
    java = {"type": "string", "avro.java.string": "String"}
    found = decode(record(("s", java)), [varint(3) + b"a\xff\xc3"])
    assert found.columns[0].as_py() == {"s": "a\ufffd\ufffd"}
    raw = decode(record(("s", "string")), [varint(2) + b"a\xff"]).columns.field("s")
    assert raw.buffers()[2].to_pybytes()[:2] == b"a\xff"


def test_empty_array_gives_no_rows() -> None:
    found = decode(record(("a", "int")), [])
    assert len(found.columns) == 0
    assert np.asarray(found.columns.field("a")).size == 0
