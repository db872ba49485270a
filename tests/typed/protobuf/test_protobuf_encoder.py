"""Encoding of rows in Protobuf, compared with Google's library, and rows that are refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import InvalidRecord, OptionError
from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of
from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder
from kafkalog_spark.typed.protobuf.field_types import FieldType, is_map, is_repeated, is_time
from kafkalog_spark.typed.protobuf.format import encoder
from tests.searches import examples
from tests.typed.canonical import canonical
from tests.typed.given_formats import of_format
from tests.typed.protos import descriptor_of, new
from tests.typed.random_protobuf import cases

schema, decoder = of_format("protobuf")

UTC = datetime.UTC
LAST_MOMENT = 9_223_372_036_854
"""Seconds of the last timestamps: those before the first whole second do not come back, as in Spark."""


def written(path: Path, name: str, rows: list[Any], type_: pa.DataType) -> list[bytes | None]:
    given = {"descfilepath": str(path), "messagename": name}
    values = encoder(given, pa.schema(list(type_))).encode(pa.array(rows, type_))
    values.validate(full=True)
    found: list[bytes | None] = values.to_pylist()
    return found


def by_library(descriptor: Any, row: dict[str, Any]) -> Any:
    """The message of a row, by Google's library."""
    message = new(descriptor)
    fill(message, row)
    return message


def fill(message: Any, row: dict[str, Any]) -> None:
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if value is None:
            continue
        if is_map(field):
            fill_map(getattr(message, name), field.message_type.fields_by_number[2], value)
        elif is_repeated(field):
            for one in value:
                if field.type == FieldType.MESSAGE:
                    fill_message(getattr(message, name).add(), one)
                else:
                    getattr(message, name).append(scalar(field, one))
        elif field.type == FieldType.MESSAGE:
            getattr(message, name).SetInParent()
            fill_message(getattr(message, name), value)
        else:
            setattr(message, name, scalar(field, value))


def fill_map(into: Any, field: Any, entries: list[tuple[Any, Any]]) -> None:
    for key, value in entries:
        if field.type == FieldType.MESSAGE:
            fill_message(into[key], value)
        else:
            into[key] = scalar(field, value)


def fill_message(message: Any, value: Any) -> None:
    if is_time(message.DESCRIPTOR, "Timestamp"):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=UTC)
        message.seconds, message.nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000
    else:
        fill(message, value)


def scalar(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_name[value].number if field.type == FieldType.ENUM else value


ITEM = pa.struct([("sku", pa.string()), ("n", pa.int32()), ("prices", pa.list_(pa.float64())), ("kind", pa.string())])
ORDER = pa.struct(
    [
        ("user", pa.string()), ("id", pa.int64()), ("amount", pa.float64()), ("kind", pa.string()),
        ("items", pa.list_(ITEM)), ("counts", pa.map_(pa.string(), pa.int64())), ("maybe", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")), ("raw", pa.binary()), ("text", pa.string()), ("number", pa.int32()),
        ("item", ITEM), ("s32", pa.int32()), ("s64", pa.int64()), ("f32", pa.int64()), ("u64", pa.int64()),
        ("sf32", pa.int32()), ("sf64", pa.int64()), ("flag", pa.bool_()), ("ratio", pa.float32()),
        ("by_number", pa.map_(pa.int32(), ITEM)), ("kinds", pa.list_(pa.string())), ("texts", pa.list_(pa.string())),
        ("packed", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def order(rng: Random) -> dict[str, Any]:
    """A row, with fields that are zero or null among the others."""
    numbers = [0, 1, -1, 300, 2**31 - 1, -(2**31)]
    texts = ["", "u", "grün 𝄞" * 30]

    def item() -> dict[str, Any]:
        return {"sku": rng.choice(texts), "n": rng.choice([None, *numbers]), "prices": rng.choice([[], [0.0, -1.5]]),
                "kind": rng.choice([None, "NONE", "NEGATIVE"])}  # fmt: skip

    row = {
        "user": rng.choice(texts), "id": rng.choice([*numbers, 2**63 - 1, -(2**63)]),
        "amount": rng.choice([0.0, -0.0, 2.5]), "kind": rng.choice(["NONE", "A", "NEGATIVE"]),
        "items": [item() for _ in range(rng.randint(0, 3))],
        "counts": [(key, rng.choice(numbers)) for key in sorted(set(rng.choices(texts, k=2)))],
        "maybe": rng.choice(numbers), "at": datetime.datetime.fromtimestamp(rng.choice([0, 1.5, -0.000001, 2e9]), UTC),
        "raw": rng.choice([b"", b"\\0\\xff"]), "text": rng.choice([None, ""]), "number": rng.choice([None, 0]),
        "item": rng.choice([None, item()]), "s32": rng.choice(numbers), "s64": rng.choice([*numbers, -(2**63)]),
        "f32": rng.choice([0, 2**32 - 1]), "u64": rng.choice([0, 2**63 - 1]), "sf32": rng.choice(numbers),
        "sf64": rng.choice(numbers), "flag": rng.choice([False, True]), "ratio": rng.choice([0.0, -0.0, 1.5]),
        "by_number": [(key, item()) for key in sorted(set(rng.choices(numbers, k=2)))],
        "kinds": rng.choice([[], ["NONE", "B", "NEGATIVE"]]), "texts": rng.choice([[], ["", "x"]]),
        "packed": rng.choice([[], [0, -1, 2**40]]),
    }  # fmt: skip
    return {name: None if rng.random() < 0.2 else value for name, value in row.items()}


def test_random_rows_are_encoded_like_googles_library(descriptors: Path) -> None:
    rng, descriptor = Random(3), descriptor_of(descriptors, "shop.Order")
    rows = [order(rng) for _ in range(examples(1500))]
    for row, value in zip(rows, written(descriptors, "shop.Order", [*rows], ORDER), strict=True):
        assert value is not None
        expected, found = by_library(descriptor, row), new(descriptor)
        found.ParseFromString(value)
        assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
        if (
            len(row["counts"] or []) < 2 and len(row["by_number"] or []) < 2
        ):  # the library sorts maps, here they are not
            assert value == expected.SerializeToString(deterministic=True)


def test_proto2_rows_need_their_required_fields(descriptors: Path) -> None:
    inner = pa.struct([("level", pa.string()), ("need", pa.int32())])
    texts = pa.list_(pa.string())
    type_ = pa.struct(
        [("id", pa.int32()), ("text", pa.string()), ("level", pa.string()), ("levels", texts), ("inner", inner)]
    )
    rows: list[dict[str, Any]] = [
        {"id": 0, "text": None, "level": None, "levels": [], "inner": None},
        {"id": 1, "text": "", "level": "LOW", "levels": ["LOW", "HIGH"], "inner": {"level": None, "need": 0}},
    ]
    descriptor = descriptor_of(descriptors, "old.Old")
    expected = [by_library(descriptor, row).SerializeToString(deterministic=True) for row in rows]
    assert written(descriptors, "old.Old", rows, type_) == expected
    with pytest.raises(InvalidRecord, match=r"row 1 does not fit old.Inner: inner.need: null, and it is required"):
        written(descriptors, "old.Old", [None, {**rows[0], "inner": {"level": "LOW", "need": None}}], type_)
    with pytest.raises(OptionError, match=r"old.Old requires id, but the rows have no such column"):
        written(descriptors, "old.Old", [], pa.struct([("text", pa.string())]))


@pytest.mark.parametrize(
    ("name", "type_", "value", "line"),
    [
        ("kind", pa.string(), "NOT_ONE", "kind: not a name of the enum shop.Kind"),
        ("maybe", pa.int64(), 2**31, "maybe: a number beyond 32 bits"),
        ("u32", pa.int64(), -1, "u32: a number beyond 32 bits"),
        ("u64", pa.decimal128(20, 0), Decimal(2**64), "u64: a number beyond 64 bits"),
        ("s64", pa.decimal128(20, 0), Decimal(-(2**63) - 1), "s64: a number beyond 64 bits"),
        ("texts", pa.list_(pa.string()), ["a", None], "texts: a null, which a repeated field cannot hold"),
        ("counts", pa.map_(pa.string(), pa.int64()), [("a", None)], "counts: a null, which a map cannot hold"),
    ],
)
def test_row_that_does_not_fit_is_refused_with_row_and_field(
    descriptors: Path, name: str, type_: pa.DataType, value: Any, line: str
) -> None:
    with pytest.raises(InvalidRecord, match=f"row 1 does not fit shop.Order: {line}"):
        written(descriptors, "shop.Order", [None, {name: value}], pa.struct([(name, type_)]))


@pytest.mark.parametrize(
    ("name", "type_", "line"),
    [
        ("other", pa.int32(), "shop.Order has no field for other"),
        ("id", pa.string(), "id is string, which cannot be written as the field shop.Order.id"),
        ("user", pa.int64(), "user is int64"),
        ("items", ITEM, "items is struct<"),
        ("single", pa.struct([("sku", pa.int64())]), "single.sku is int64"),
        ("counts", pa.list_(pa.int64()), "counts is list<"),
        ("at", pa.int64(), "at is int64"),
    ],
)
def test_column_that_the_message_cannot_represent_is_refused(
    descriptors: Path, name: str, type_: pa.DataType, line: str
) -> None:
    with pytest.raises(OptionError, match=line):
        written(descriptors, "shop.Order", [], pa.struct([(name, type_)]))


def test_negative_numbers_are_the_bits_of_unsigned_fields_as_in_spark(descriptors: Path) -> None:
    type_ = pa.struct([("u32", pa.int32()), ("u64", pa.int64()), ("f32", pa.int32()), ("f64", pa.decimal128(20, 0))])
    row = {"u32": -1, "u64": -1, "f32": -(2**31), "f64": Decimal(2**64 - 1)}
    (value,) = written(descriptors, "shop.Order", [row], type_)
    found = new(descriptor_of(descriptors, "shop.Order"))
    found.ParseFromString(value)
    assert (found.u32, found.u64, found.f32, found.f64) == (2**32 - 1, 2**64 - 1, 2**31, 2**64 - 1)


def test_last_non_null_column_of_a_oneof_is_written(descriptors: Path) -> None:
    type_ = pa.struct([("number", pa.int32()), ("text", pa.string())])
    found = []
    for value in written(descriptors, "shop.Order", [{"number": 0, "text": ""}, {"number": 0, "text": None}], type_):
        message = new(descriptor_of(descriptors, "shop.Order"))
        message.ParseFromString(value)
        found.append(message.WhichOneof("one"))
    assert found == ["text", "number"]


@pytest.mark.parametrize("seed", range(examples(30)))
def test_encoder_round_trip_of_random_messages(seed: int) -> None:
    for case in cases(seed, 3, 25):
        given = {"descriptors": case.descriptors, "messagename": "T.M0", **case.options}
        columns = schema(given)
        pool, names = pool_of(case.descriptors, "a random descriptor set")
        descriptor = message_of(pool, names, "T.M0", "a random descriptor set")
        try:
            made = ProtobufEncoder(descriptor, columns)
        except OptionError as refused:
            assert "requires" in str(refused)  # noqa: PT017  a recursive message, cut above what it requires
            continue
        read = decoder(given, columns).decode(pa.array(case.values, pa.binary()))
        for i in range(len(case.values)):
            row = read.columns.slice(i, 1)
            if (read.bad is not None and read.bad[i]) or has_extremes(canonical(row)):
                continue
            try:
                value = made.encode(row)
            except InvalidRecord as refused:
                assert "required" in str(refused) or "of the enum" in str(refused)  # noqa: PT017
                continue
            new(descriptor).ParseFromString(value[0].as_py())
            assert canonical(decoder(given, columns).decode(value).columns) == canonical(row)


def has_extremes(value: Any) -> bool:
    """Whether there may be a timestamp that cannot be read back in it."""
    if isinstance(value, dict):
        return any(map(has_extremes, [*value.values()]))
    if isinstance(value, list):
        return any(map(has_extremes, value))
    return isinstance(value, int) and -(2**63) <= value < -LAST_MOMENT * 1_000_000
