"""Rows written as JSON without Spark: what Jackson and Java write, and what a plain writer makes of random columns."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.decoder import encoder_of
from kafkalog_spark.typed.java_text import double_text, float_text, json_quoted
from kafkalog_spark.typed.json_encoder import JsonEncoder
from kafkalog_spark.typed.json_options import json_options
from tests.searches import examples
from tests.typed.random_rows import random_float, random_rows


def written(rows: pa.Array, **options: str) -> list[bytes | None]:
    values = encoder_of("json", options, pa.schema(list(rows.type))).encode(rows)
    values.validate(full=True)
    found: list[bytes | None] = values.to_pylist()
    return found


def column(values: list[Any], type_: pa.DataType, **options: str) -> list[str]:
    """What stands for each value of a column `a`."""
    rows = written(pa.array([{"a": one} for one in values], pa.struct([("a", type_)])), **options)
    return [row.decode().removeprefix('{"a":').removesuffix("}") for row in rows if row is not None]


DOUBLES = {
    -0.0: "-0.0", 1.0: "1.0", -1.5: "-1.5", 100.0: "100.0", 123.45: "123.45", 1e6: "1000000.0",
    9999999.0: "9999999.0", 1e7: "1.0E7", 12345678.9: "1.23456789E7", 0.001: "0.001", 0.00099: "9.9E-4",
    1e16: "1.0E16", 1e23: "1.0E23", 2e-3: "0.002", 0.1 + 0.2: "0.30000000000000004", 1 / 3: "0.3333333333333333",
    5e-324: "4.9E-324", 1e-323: "9.9E-324", 2.2250738585072014e-308: "2.2250738585072014E-308",
    1.7976931348623157e308: "1.7976931348623157E308", 123456789012345680.0: "1.2345678901234568E17",
    999999999999999.0: "9.99999999999999E14", float("inf"): '"Infinity"', -float("inf"): '"-Infinity"',
}  # fmt: skip
"""Double.toString of Java 19 and later."""
FLOATS = {
    0.1: "0.1", 1e-45: "1.4E-45", 3e-45: "2.8E-45", 1.17549435e-38: "1.1754944E-38", 3.4028235e38: "3.4028235E38",
    16777216.0: "1.6777216E7", 0.33333334: "0.33333334", 1e10: "1.0E10", 2e-3: "0.002", 9999999.0: "9999999.0",
}  # fmt: skip


def test_numbers_are_as_java_writes_them() -> None:
    assert column(list(DOUBLES), pa.float64()) == list(DOUBLES.values())
    assert column(list(FLOATS), pa.float32()) == list(FLOATS.values())
    assert column([float("nan"), 0.0], pa.float64()) == ['"NaN"', "0.0"]
    assert column([-128, 127], pa.int8()) == ["-128", "127"]
    assert column([-(2**63), 2**63 - 1], pa.int64()) == ["-9223372036854775808", "9223372036854775807"]
    decimals = [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")]
    assert column(decimals, pa.decimal128(9, 2)) == ["1.50", "-0.01", "0.00"]
    assert column([Decimal("0E-18"), Decimal("1E-18")], pa.decimal128(38, 18)) == ["0E-18", "1E-18"]


@pytest.mark.parametrize("single", [False, True], ids=["doubles", "floats"])
def test_random_numbers_have_the_shortest_digits(single: bool) -> None:
    rng = Random(7)
    numbers = [one for one in (random_float(rng, single) for _ in range(examples(30_000))) if one == one]
    found = column(numbers, pa.float32() if single else pa.float64())
    for number, text in zip(numbers, found, strict=True):
        expected = float_text(np.float32(number)) if single else double_text(number)
        assert text.strip('"') == expected
        back = float(text.strip('"').replace("Infinity", "inf"))
        assert (np.float32(back) if single else back) == number


def test_texts_and_bytes_are_as_jackson_writes_them() -> None:
    texts = ["", 'a"b', "\\", "/", "\b\t\n\f\r", "\x00\x1f\x7f", "é日𝄞", "\u2028"]
    assert column(texts, pa.string()) == [
        '""', '"a\\"b"', '"\\\\"', '"/"', '"\\b\\t\\n\\f\\r"', '"\\u0000\\u001F\x7f"', '"é日𝄞"', '"\u2028"',
    ]  # fmt: skip
    blobs = [b"", b"a", b"ab", b"abc", b"\xff\xfe\xfd\xfc"]
    assert column(blobs, pa.binary()) == [f'"{base64.b64encode(one).decode()}"' for one in blobs]
    assert column(texts, pa.large_string()) == column(texts, pa.string())


def test_what_is_not_utf8_is_replaced_as_java_does() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xffbc\xed\xa0")])
    rows = pa.StructArray.from_arrays([texts], names=["a"])
    assert written(rows) == ['{"a":"a\ufffdb"}'.encode(), '{"a":"c\ufffd"}'.encode()]


def test_dates_and_timestamps_are_iso_8601_in_every_year() -> None:
    days = [0, -1, 19782, -719528, -719529, 2932896, 2932897, -(2**31), 2**31 - 1]
    assert column(days, pa.date32()) == [
        f'"{one}"' for one in (
            "1970-01-01", "1969-12-31", "2024-02-29", "0000-01-01", "-0001-12-31", "9999-12-31", "+10000-01-01",
            "-5877641-06-23", "+5881580-07-11",
        )
    ]  # fmt: skip
    us = [0, -1, 1_700_000_000_123_456, -62_167_219_200_000_000, 2**63 - 1, -(2**63)]
    local = ["1970-01-01T00:00:00.000", "1969-12-31T23:59:59.999", "2023-11-14T22:13:20.123", "0000-01-01T00:00:00.000",
             "+294247-01-10T04:00:54.775", "-290308-12-21T19:59:05.224"]  # fmt: skip
    assert column(us, pa.timestamp("us")) == [f'"{one}"' for one in local]
    assert column(us, pa.timestamp("us", tz="UTC")) == [f'"{one}Z"' for one in local]


def test_timestamps_have_the_offset_of_their_zone() -> None:
    us = [0, 1_700_000_000_123_456, 1_720_000_000_000_000]
    kind = pa.timestamp("us", tz="Asia/Tokyo")  # how Arrow would show them: the moments are the same
    for zone in ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"):
        moments = [datetime.datetime.fromtimestamp(one / 1e6, ZoneInfo(zone)) for one in us]
        expected = [f'"{moment.isoformat(timespec="milliseconds")}"' for moment in moments]
        assert column(us, kind, timezone=zone) == expected
    assert column([-5_000_000_000_000_000], kind, timezone="Europe/Berlin") == ['"1811-07-23T16:00:08.000+00:53:28"']
    assert column([0], kind, timezone="+05:30") == ['"1970-01-01T05:30:00.000+05:30"']


def test_fields_that_are_null_are_left_out_unless_they_are_wanted() -> None:
    type_ = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())])), ("d", pa.list_(pa.int8()))])
    rows = pa.array([{"a": None, "b": {"c": None}, "d": [None, 1]}, {"a": 1, "b": None, "d": None}, None], type_)
    assert written(rows) == [b'{"b":{},"d":[null,1]}', b'{"a":1}', None]
    assert written(rows, ignorenullfields="false") == [
        b'{"a":null,"b":{"c":null},"d":[null,1]}', b'{"a":1,"b":null,"d":null}', None,
    ]  # fmt: skip
    nothing = pa.array([{"a": None, "b": None, "d": None}], type_)
    assert written(nothing) == [b"{}"]
    assert written(rows.slice(0, 0)) == []


def test_what_is_inside_of_a_null_is_not_written() -> None:
    inside = pa.StructArray.from_arrays([pa.array([1, 2])], names=["x"], mask=pa.array([True, False]))
    rows = pa.StructArray.from_arrays([inside, pa.array(["p", "q"])], names=["s", "t"])
    assert written(rows) == [b'{"t":"p"}', b'{"s":{"x":2},"t":"q"}']


def test_a_prefix_begins_each_value_that_is_there() -> None:
    given = pa.schema([("a", pa.int32())])
    encoder = JsonEncoder(given, json_options({}), prefix=b"\0\0\0\0\7")
    rows = pa.array([{"a": 1}, None], pa.struct(list(given)))
    assert encoder.encode(rows).to_pylist() == [b'\0\0\0\0\7{"a":1}', None]


def test_patterns_are_refused() -> None:
    with pytest.raises(OptionError, match="of reads"):
        encoder_of("json", {"dateformat": "yyyy/MM/dd"}, pa.schema([("a", pa.date32())]))


@pytest.mark.parametrize("seed", range(examples(40)))
def test_random_rows_are_written_as_one_would_write_them_value_by_value(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, 60)
    keep = rng.random() < 0.5
    options = {} if keep else {"ignorenullfields": "false"}
    begin = rng.choice([0, 0, 7])
    rows = rows.slice(begin, rng.randint(0, 60 - begin))
    expected = [None if row is None else plainly(row, rows.type, keep).encode() for row in rows.to_pylist()]
    assert written(rows, **options) == expected
    assert all(isinstance(json.loads(one), dict) for one in expected if one is not None)


def plainly(value: Any, type_: pa.DataType, left_out: bool) -> str:
    """JSON of one value, written plainly."""
    if value is None:
        return "null"
    if pa.types.is_struct(type_):
        kept = [field for field in type_ if not left_out or value[field.name] is not None]
        return f"{{{','.join(f'{json_quoted(f.name)}:{plainly(value[f.name], f.type, left_out)}' for f in kept)}}}"
    if pa.types.is_map(type_):
        return f"{{{','.join(f'{json_quoted(k)}:{plainly(v, type_.item_type, left_out)}' for k, v in value)}}}"
    if pa.types.is_list(type_):
        return f"[{','.join(plainly(one, type_.value_type, left_out) for one in value)}]"
    if pa.types.is_boolean(type_):
        return str(value).lower()
    if pa.types.is_string(type_):
        return json_quoted(value)
    if pa.types.is_binary(type_):
        return f'"{base64.b64encode(value).decode()}"'
    if pa.types.is_floating(type_):
        text = float_text(np.float32(value)) if type_ == pa.float32() else double_text(value)
        return text if text[-1].isdigit() else f'"{text}"'
    if pa.types.is_date(type_):
        return f'"{value.isoformat()}"'
    if pa.types.is_timestamp(type_):
        return f'"{value.replace(tzinfo=None).isoformat(timespec="milliseconds")}{"Z" if type_.tz else ""}"'
    return str(value)
