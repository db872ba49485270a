"""Encoding of rows in Avro, compared with fastavro; unions, defaults, and rows that are refused."""

from __future__ import annotations

import contextlib
import copy
import decimal
import io
import json
import struct
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafkalog_spark.errors import InvalidRecord, OptionError
from kafkalog_spark.typed.avro.format import encoder
from tests.searches import examples
from tests.typed.canonical import canonical
from tests.typed.given_formats import of_format
from tests.typed.random_avro import by_fastavro, cases, varint
from tests.typed.random_rows import random_rows

schema, decoder = of_format("avro")


def record(*fields: tuple[str, Any], name: str = "R") -> Any:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": avro} for one, avro in fields]}


def inner(*fields: tuple[str, Any]) -> Any:
    return record(*fields, name="In")


def test_rows_are_written_with_the_schema_of_to_avro() -> None:
    columns = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "d": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
            "t": pa.array([0, None], pa.timestamp("us", "UTC")),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"x": [1.5, None]}, None], pa.struct([("x", pa.list_(pa.float64()))])),
        }
    )
    made = encoder({}, columns.schema)
    values = made.encode(columns.to_struct_array().combine_chunks())
    text = made.schema_json  # type: ignore[attr-defined]
    assert json.loads(text)["fields"][1]["type"][0]["name"] == "topLevelRecord.d.fixed"
    read = decoder({"schema": text}, schema({"schema": text})).decode(values)
    assert read.columns.to_pylist() == columns.to_pylist()
    first = fastavro.schemaless_reader(io.BytesIO(values[0].as_py()), json.loads(text), None)
    assert first["id"] == 1


ODD_ROWS = {
    "int": ({"a": 2**31}, "a: a number beyond 32 bits"),
    "null": ({"a": None}, "a: null, and the schema has long without null"),
    "enum": ({"a": "C"}, "a: not a symbol of E"),
    "fixed": ({"a": b"abc"}, "a: not the 2 bytes of a fixed"),
    "decimal": ({"a": decimal.Decimal("10.00")}, r"a: more than decimal\(3, 2\) holds"),
    "nanoseconds": ({"a": 2**61}, "a: a time beyond 64 bits of nanoseconds"),
    "element": ({"a": [1, None]}, "a.element: null, and the schema has long without null"),
    "union": ({"a": None}, "a: null, and the union has none"),
}
ODD_TYPES = {
    "int": (pa.int64(), "int"),
    "null": (pa.int64(), "long"),
    "enum": (pa.string(), {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    "fixed": (pa.binary(), {"type": "fixed", "name": "F", "size": 2}),
    "decimal": (pa.decimal128(9, 2), {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}),
    "nanoseconds": (pa.timestamp("us", tz="UTC"), {"type": "long", "logicalType": "timestamp-nanos"}),
    "element": (pa.list_(pa.int64()), {"type": "array", "items": "long"}),
    "union": (pa.int64(), ["long", "string"]),
}


@pytest.mark.parametrize("what", ODD_ROWS)
def test_row_that_does_not_fit_the_schema_is_refused_with_row_and_field(what: str) -> None:
    (row, line), (type_, avro) = ODD_ROWS[what], ODD_TYPES[what]
    given = pa.schema([("a", type_)])
    made = encoder({"schema": json.dumps(record(("a", avro)))}, given)
    fine = pa.array([None, None], pa.struct(list(given)))  # a null row is a null value, whatever the schema
    assert made.encode(fine).to_pylist() == [None, None]
    with pytest.raises(InvalidRecord, match=f"row 2 does not fit the Avro schema: {line}"):
        made.encode(pa.concat_arrays([fine, pa.array([row], pa.struct(list(given)))]))


@pytest.mark.parametrize(
    ("type_", "avro", "line"),
    [
        (pa.string(), "int", "a is string, which cannot be written as int"),
        (pa.int64(), "string", "a is int64, which cannot be written as string"),
        (pa.float64(), "long", "a is double, which cannot be written as long"),
        (pa.list_(pa.string()), {"type": "array", "items": "bytes"}, "a.element is string"),
        (pa.struct([("x", pa.int32()), ("y", pa.int32())]), inner(("x", "int")), "no field for y in In"),
        (pa.struct([("x", pa.int32())]), inner(("x", "int"), ("y", "int")), "the field y in In"),
        (pa.map_(pa.int32(), pa.int32()), {"type": "map", "values": "int"}, "a is map<int32"),
        (pa.date32(), ["null", "string"], "a is date32"),
        (pa.decimal128(5, 2), "bytes", "a is decimal128"),
        (pa.decimal128(5, 2), {"type": "bytes", "logicalType": "decimal", "precision": 39}, "a is decimal128"),
    ],
)
def test_column_that_the_schema_cannot_represent_is_refused(type_: pa.DataType, avro: Any, line: str) -> None:
    with pytest.raises(OptionError, match=line):
        encoder({"schema": json.dumps(record(("a", avro)))}, pa.schema([("a", type_)]))


def test_fields_without_a_column_have_their_defaults_or_are_null() -> None:
    in_it = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "double", "default": -1.5}]}
    fields = [
        {"name": "n", "type": ["null", "int"]},
        {"name": "m", "type": {"type": "map", "values": "int"}, "default": {"k": 3}},
        {"name": "l", "type": {"type": "array", "items": "string"}, "default": ["p", "q"]},
        {"name": "s", "type": in_it, "default": {}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"},
        {"name": "b", "type": ["bytes", "null"], "default": "\u00ff\u0001"},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}, "default": "z"},
        {"name": "t", "type": "boolean", "default": True},
        {"name": "g", "type": {"type": "fixed", "name": "G", "size": 2}, "default": "z"},
        {"name": "h", "type": "bytes", "default": "\u0100"},
        {"name": "i", "type": "int", "default": 2**31},
        {"name": "id", "type": "long"},
    ]
    schema_json = {"type": "record", "name": "R", "fields": fields}
    given = pa.schema([("id", pa.int32())])
    value = encoder({"schema": json.dumps(schema_json)}, given).encode(pa.array([{"id": 70}], pa.struct(list(given))))
    expected = {"n": None, "m": {"k": 3}, "l": ["p", "q"], "s": {"x": -1.5}, "e": "B", "b": b"\xff\x01", "f": b"z",
                "t": True, "g": b"z\0", "h": b"?", "i": -(2**31), "id": 70}  # fmt: skip
    assert fastavro.schemaless_reader(io.BytesIO(value[0].as_py()), schema_json, None) == expected


def test_union_branch_closest_to_the_column_is_written() -> None:
    numbers = record(("a", ["null", "int", "long", "float", "double", "string"]))
    for type_, value, branch in ((pa.int16(), 1, 1), (pa.int64(), 1, 2), (pa.float64(), 1.0, 4), (pa.string(), "", 5)):
        given = pa.schema([("a", type_)])
        rows = pa.array([{"a": value}, {"a": None}], pa.struct(list(given)))
        found = encoder({"schema": json.dumps(numbers)}, given).encode(rows).to_pylist()
        assert found[0][:1] == varint(branch)
        assert found[1] == varint(0)
    given = pa.schema([("a", pa.int64())])  # no branch is a long: the first that has room for it
    rows = pa.array([{"a": 5}], pa.struct(list(given)))
    found = encoder({"schema": json.dumps(record(("a", ["null", "double", "string"])))}, given).encode(rows)
    assert found.to_pylist() == [varint(1) + struct.pack("<d", 5.0)]


def test_decimals_are_written_without_redundant_sign_bytes() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 10**37, -(10**37)]
    given = pa.schema([("a", pa.decimal128(38, 0))])
    rows = pa.array([{"a": decimal.Decimal(one)} for one in numbers], pa.struct(list(given)))
    of_bytes = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    of_fixed = {"type": "fixed", "name": "F", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0}
    shortest = encoder({"schema": json.dumps(record(("a", of_bytes)))}, given).encode(rows).to_pylist()
    for number, value in zip(numbers, shortest, strict=True):
        size = (number + (number < 0)).bit_length() // 8 + 1  # BigInteger.toByteArray
        assert value == varint(size) + number.to_bytes(size, "big", signed=True)
    wide = encoder({"schema": json.dumps(record(("a", of_fixed)))}, given).encode(rows).to_pylist()
    assert wide == [number.to_bytes(20, "big", signed=True) for number in numbers]


@pytest.mark.parametrize("seed", range(examples(30)))
def test_decoded_values_are_written_so_that_fastavro_reads_them(seed: int) -> None:
    for case in cases(seed, 4, 25):
        given = {"schema": json.dumps(case.writer)}
        columns = schema(given)
        read = decoder(given, columns).decode(pa.array(case.values, pa.binary()))
        good = [i for i in range(len(case.values)) if read.bad is None or not read.bad[i]]
        rows = read.columns.take(pa.array(good, pa.int64()))
        values = encoder(given, columns).encode(rows)
        values.validate(full=True)
        back = decoder(given, columns).decode(values)
        assert back.bad is None
        assert canonical(back.columns) == canonical(rows)
        parsed = fastavro.parse_schema(copy.deepcopy(case.writer))
        for value in values.to_pylist():
            rest = io.BytesIO(value)
            with contextlib.suppress(OverflowError, ValueError):  # a time, a text that Python does not hold
                fastavro.schemaless_reader(rest, parsed, None)
                assert rest.read() == b""


@pytest.mark.parametrize("seed", range(examples(30)))
def test_random_rows_are_written_like_fastavro(seed: int) -> None:
    rows = random_rows(Random(seed), 40)
    if any('"' in field.name for field in rows.type):
        return  # no name of Avro's
    made = encoder({}, pa.schema(list(rows.type)))
    written = json.loads(made.schema_json)  # type: ignore[attr-defined]
    expected = [None if row is None else by_fastavro(written, as_dicts(row, rows.type)) for row in rows.to_pylist()]
    assert made.encode(rows).to_pylist() == expected


def as_dicts(value: Any, type_: pa.DataType) -> Any:
    """A row with maps as fastavro takes them."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: as_dicts(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {key: as_dicts(one, type_.item_type) for key, one in value}
    return [as_dicts(one, type_.value_type) for one in value] if pa.types.is_list(type_) else value
