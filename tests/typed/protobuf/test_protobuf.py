"""Decoding of Protobuf values, with Google's library as writer and oracle."""

from __future__ import annotations

import decimal
import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources
from kafkalog_spark.typed.protobuf.field_types import is_map, is_repeated
from tests.typed.given_formats import of_format
from tests.typed.protos import descriptor_of, new

schema, decoder = of_format("protobuf")

MESSAGES = ("shop.Order", "shop.Node", "old.Old")


def decode(path: Path, name: str, values: list[bytes | None], **options: str) -> Decoded:
    given = {"descfilepath": str(path), "messagename": name, **options}
    found = decoder(given, schema(given)).decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    return found


def expected(message: Any, type_: pa.DataType, defaults: bool = False) -> Any:
    """A message as Spark's from_protobuf makes a row of it."""
    row = {}
    for field in type_:
        at = message.DESCRIPTOR.fields_by_name[field.name]
        row[field.name] = _field(message, at, field.type, defaults)
    return row


def _field(message: Any, field: Any, type_: pa.DataType, defaults: bool) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        of = field.message_type.fields_by_number[2]
        return {key: _one(of, value[key], type_.item_type, defaults) for key in value}
    if is_repeated(field):
        return [_one(field, one, type_.value_type, defaults) for one in value]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    if not field.has_presence and not defaults and (value == field.default_value and str(value) != "-0.0"):
        return None
    return _one(field, value, type_, defaults)


def _one(field: Any, value: Any, type_: pa.DataType, defaults: bool) -> Any:
    if field.type == 14 and pa.types.is_string(type_):
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}"
    if pa.types.is_timestamp(type_):
        return value.seconds * 1_000_000 + math.trunc(value.nanos / 1000)
    if field.type == 9 and isinstance(value, bytes):  # proto2, and not UTF-8
        return value.decode("utf-8", "replace")
    if field.type == 11:
        return expected(value, type_, defaults)
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if pa.types.is_decimal(type_):
        return decimal.Decimal(value)
    return "nan" if value != value else value


def plain(array: Any) -> list[Any]:
    """Rows to compare: maps as dict, timestamps as microseconds, NaN equal to itself."""
    from tests.typed.canonical import canonical

    def texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {key.encode() if isinstance(key, str) else key: texts(one) for key, one in value.items()}
        if isinstance(value, list):
            return [texts(one) for one in value]
        if isinstance(value, str):
            return value if value == "nan" else float(value)
        return value

    return [texts(row) for row in canonical(array)]


def as_bytes(value: Any) -> Any:
    """Texts as bytes, as `canonical` gives them."""
    if isinstance(value, dict):
        return {as_bytes(key): as_bytes(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_bytes(one) for one in value]
    if not isinstance(value, str) or value == "nan":
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def fill(rng: random.Random, message: Any, depth: int = 3) -> Any:
    """Random fields of a message, each with one chance in two."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.5 and not (field.name == "need" or field.name == "id"):
            continue
        if is_map(field):
            of = field.message_type.fields_by_number[2]
            key = field.message_type.fields_by_number[1]
            for _ in range(rng.randint(0, 3) if depth else 0):
                at = _scalar(rng, key)
                if of.type == 11:
                    fill(rng, getattr(message, field.name)[at], depth - 1)
                else:
                    getattr(message, field.name)[at] = _scalar(rng, of)
        elif is_repeated(field):
            for _ in range(rng.randint(0, 3) if depth else 0):
                if field.type == 11:
                    fill(rng, getattr(message, field.name).add(), depth - 1)
                else:
                    getattr(message, field.name).append(_scalar(rng, field))
        elif field.type == 11:
            if field.message_type.name == "Timestamp":
                message.at.seconds, message.at.nanos = (
                    rng.randint(-(10**10), 10**10),
                    rng.randint(-999_999, 999_999_999),
                )
            elif depth:
                getattr(message, field.name).SetInParent()
                fill(rng, getattr(message, field.name), depth - 1)
        else:
            setattr(message, field.name, _scalar(rng, field))
    return message


def _scalar(rng: random.Random, field: Any) -> Any:
    if field.type in (1, 2):
        return rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), -2.25])
    if field.type == 8:
        return rng.random() < 0.5
    if field.type == 9:
        return rng.choice(["", "a", "grün", "日本語𝄞", "x" * 300])
    if field.type == 12:
        return rng.randbytes(rng.choice([0, 1, 40]))
    if field.type == 14:
        numbers = [value.number for value in field.enum_type.values]
        return rng.choice(numbers if field.enum_type.is_closed else [*numbers, 77, -3])
    unsigned = field.type in (4, 6, 7, 13)
    bits = 64 if field.type in (3, 4, 6, 16, 18) else 32
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice([0, 1, low, high, rng.randint(low, high)])


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("defaults", [False, True])
def test_random_messages_are_read_as_googles_library_reads_them(descriptors: Path, name: str, defaults: bool) -> None:
    rng = random.Random(7)
    descriptor = descriptor_of(descriptors, name)
    messages = [fill(rng, new(descriptor)) for _ in range(300)]
    values = [one.SerializeToString() for one in messages]
    options = {"emit.default.values": str(defaults).lower(), "recursive.fields.max.depth": "3"}
    found = decode(descriptors, name, list(values), **options)
    assert found.bad is None, found.why(0)
    rows = plain(found.columns)
    for message, row in zip(messages, rows, strict=True):
        assert row == as_bytes(expected(message, found.columns.type, defaults))


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_in_parts_are_merged(descriptors: Path, name: str) -> None:
    rng = random.Random(9)
    descriptor = descriptor_of(descriptors, name)
    for _ in range(60):
        parts = [fill(rng, new(descriptor)).SerializeToString() for _ in range(2)]
        whole = new(descriptor)
        for part in parts:
            whole.MergeFromString(part)
        found = decode(descriptors, name, [b"".join(parts)], **{"recursive.fields.max.depth": "3"})
        assert found.bad is None
        assert plain(found.columns) == [as_bytes(expected(whole, found.columns.type))]


@pytest.mark.parametrize("name", MESSAGES)
def test_value_that_googles_library_refuses_is_malformed(descriptors: Path, name: str) -> None:
    """And what it takes is read, but for what Spark alone refuses: fields of the message with another type.

    Java takes a few that Google's library in C refuses: tags of more than 32 bits, of which it drops the rest, and
    unknown fields inside an entry of a map. And of numbers of ten bytes it reads the highest bit as set.
    """
    from google.protobuf import message, unknown_fields

    from tests.typed.random_avro import broken

    rng = random.Random(11)
    descriptor = descriptor_of(descriptors, name)
    values = [broken(rng, fill(rng, new(descriptor)).SerializeToString()) for _ in range(600)]
    found = decode(descriptors, name, list(values), **{"recursive.fields.max.depth": "2"})
    rows = plain(found.columns)
    numbers = set(descriptor.fields_by_number)
    refused = javas = 0
    for i, value in enumerate(values):
        whole = new(descriptor)
        try:
            whole.MergeFromString(value)
            good = whole.IsInitialized() and not any(
                one.field_number in numbers for one in unknown_fields.UnknownFieldSet(whole)
            )
        except message.DecodeError:
            good = False
        refused += not good
        is_bad = found.bad is not None and bool(found.bad[i])
        assert not (good and is_bad), (value.hex(), found.why(i))
        javas += not good and not is_bad
        if good and not re.search(rb"[\x80-\xff]{9}[\x00\x02-\x7f]", value):
            assert rows[i] == as_bytes(expected(whole, found.columns.type)), value.hex()
    assert refused > 50
    assert javas <= 5


def test_columns_have_sparks_types(descriptors: Path) -> None:
    given = {"descfilepath": str(descriptors), "messagename": "Order"}
    types = {field.name: field.type for field in schema(given)}
    assert types["u32"] == pa.int32()
    assert types["at"] == pa.timestamp("us", "UTC")
    assert types["kind"] == pa.string()
    given |= {"upcast.unsigned.ints": "true", "enums.as.ints": "true"}
    types = {field.name: field.type for field in schema(given)}
    assert types["u32"] == pa.int64()
    assert types["u64"] == pa.decimal128(20, 0)
    assert types["kind"] == pa.int32()
    message = new(descriptor_of(descriptors, "shop.Order"))
    message.u32, message.u64, message.kind = 2**32 - 1, 2**64 - 1, 2
    row = decode(descriptors, "Order", [message.SerializeToString()], **given).columns[0].as_py()
    assert (row["u32"], row["u64"], row["kind"]) == (2**32 - 1, decimal.Decimal(2**64 - 1), 2)
    assert schema({**given, "messagename": "HasEmpty"}).names == ["n"]


def test_refused_schema_or_option_is_named(descriptors: Path, tmp_path: Path) -> None:
    given = {"descfilepath": str(descriptors), "messagename": "shop.Node"}
    with pytest.raises(OptionError, match=r"shop.Node.next makes shop.Node recursive.*recursive.fields.max.depth"):
        schema(given)
    assert schema({**given, "recursive.fields.max.depth": "1"}).names == ["id"]
    for option in ("retain.empty.message.types", "unwrap.primitive.wrapper.types", "convert.any.fields.to.json"):
        with pytest.raises(OptionError, match=option):
            schema({**given, option: "true"})
    with pytest.raises(OptionError, match=r"no message Nothing; it has .*old.Inner"):
        schema({**given, "messagename": "Nothing"})
    with pytest.raises(OptionError, match="option 'messageName' is missing"):
        schema({"descfilepath": str(descriptors)})
    (tmp_path / "x").write_bytes(b"\xff\xff")
    with pytest.raises(OptionError, match="is not a descriptor set"):
        schema({"descfilepath": str(tmp_path / "x"), "messagename": "m"})


HOSTILE = {
    "a length that lies": (b"\x12\xff\xff\xff\xff\x07abc", "does not end within"),
    "a length below 0": (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "does not end within"),
    "field number 0": (b"\x00\x01", "number 0"),
    "a wire type that there is not": (b"\xa7\x7d", "an unknown wire type"),
    "a group that ends without a begin": (b"\xa4\x7d", "the end of a group"),
    "groups without end": (b"\xa3\x7d" * 100_000, "100 messages inside each other"),
    "no UTF-8": (b"\x12\x02\xc3\x28", "not UTF-8"),
    "another wire type": (b"\x0a\x01a", "another wire type"),
    "packed numbers that do not end": (b"\x82\x7d\x02\x01\x80", "does not end within"),
    "a timestamp beyond all": (b"\x42\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10", "does not end"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_message_is_malformed_and_its_neighbours_are_read(descriptors: Path, what: str) -> None:
    value, why = HOSTILE[what]
    found = decode(descriptors, "Order", [b"\x08\x01", value, None, b"\x08\x02"])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False, False]
    assert why in found.why(1)
    assert [row and row["id"] for row in found.columns.to_pylist()] == [1, None, None, 2]


def test_message_nested_more_than_100_levels_is_malformed(descriptors: Path) -> None:
    def nested(times: int) -> bytes:
        found = b"\x08\x01"
        for _ in range(times):
            size, raw = len(found), b""
            while size > 127:
                raw, size = raw + bytes([size & 127 | 128]), size >> 7
            found = b"\x12" + raw + bytes([size]) + found
        return found

    found = decode(descriptors, "Node", [nested(99), nested(101)], **{"recursive.fields.max.depth": "2"})
    assert found.bad is not None
    assert found.bad.tolist() == [False, True]


def test_resolved_format_contains_the_descriptor_set(descriptors: Path, tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_bytes(descriptors.read_bytes())
    sources = SchemaSources("value", (), lambda topic: [])
    found = ResolvedFormat.of("protobuf", {"descfilepath": str(path), "messagename": "shop.Order"}, sources)
    path.unlink()
    assert found.schema().names[0] == "id"
