"""The JSON decoder without Spark: kernel and fallback give equal results, and no value does harm."""

from __future__ import annotations

import json
import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.ddl import ddl_of_schema, schema_of_ddl
from kafkalog_spark.typed.formats import format_of
from kafkalog_spark.typed.json.format import JsonDecoder
from kafkalog_spark.typed.json.options import json_options
from kafkalog_spark.typed.schema_limits import depth_parser
from tests.spark.helpers.random_json import DDL, random_values
from tests.spark.helpers.spark_functions import assert_same, comparable
from tests.typed.given_formats import decoder_of


def decoder(ddl: str, **options: str) -> JsonDecoder:
    return JsonDecoder(schema_of_ddl(ddl), json_options(options))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_kernel_and_fallback_decode_random_values_alike(zone: str) -> None:
    values = random_values(1500, seed=len(zone))
    array = pa.array(values, pa.binary())
    ours = decoder(f"{DDL}, _corrupt_record string", timezone=zone)
    fast, slow = ours.decode(array), ours._decode_all_with_fallback(array)
    assert_same(comparable(fast.columns), comparable(slow.columns), values)
    assert fast.bad is not None
    assert slow.bad is not None
    assert np.array_equal(fast.bad, slow.bad)
    first = int(np.argmax(fast.bad))
    assert fast.why(first) == slow.why(first)


ORDER = (
    b'{"id":148,"user":"user-285149","amount":7271.5,"country":"US","active":false,"at":"2024-09-19T17:54:37.029Z",'
    b'"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","tags":["a"],"last":null}'
)
ORDER_DDL = (
    "id bigint, user string, amount double, active boolean, at timestamp, note string, tags array<string>, last string"
)


def test_objects_that_differ_slightly_from_the_previous_one_are_decoded() -> None:
    """Each byte in its turn left out, another one, one more, or the last one; a whole object between any two."""
    chance = random.Random(5)
    others = b' ,:"\\{}[]09-.etfn\t\n\x01\x80\xc3'
    values = []
    for at in range(len(ORDER)):
        other = bytes([chance.choice(others)])
        values += [ORDER, ORDER[:at] + ORDER[at + 1 :], ORDER[:at] + other + ORDER[at + 1 :]]
        values += [ORDER, ORDER[:at] + other + ORDER[at:], ORDER[:at]]
    array = pa.array(values, pa.binary())
    ours = decoder(f"{ORDER_DDL}, _corrupt_record string")
    fast, slow = ours.decode(array), ours._decode_all_with_fallback(array)
    assert_same(comparable(fast.columns), comparable(slow.columns), values)
    assert fast.bad is not None
    assert slow.bad is not None
    assert np.array_equal(fast.bad, slow.bad)
    assert not fast.bad[::3].any()


@pytest.mark.parametrize("style", ["as it is", "spaced", "indented", "shuffled", "not ASCII"])
def test_kernel_decodes_json_of_every_style_without_the_fallback(style: str) -> None:
    from kafkalog_spark.typed.json.batch import JsonBatch

    order = json.loads(ORDER)
    rows = [{**order, "id": n, "note": "ü" * n if style == "not ASCII" else "x" * n} for n in range(200)]
    if style == "shuffled":
        chance = random.Random(6)
        rows = [dict(chance.sample(sorted(row.items()), len(row))) for row in rows]
    separators = (",", ":") if style == "as it is" else None
    indent = 2 if style == "indented" else None
    texts = [json.dumps(row, separators=separators, indent=indent, ensure_ascii=False).encode() for row in rows]
    ours = decoder(ORDER_DDL)
    array = pa.array(texts, pa.binary())
    assert not len(JsonBatch(ours._program, BufferPool(), Values.of(array)).deferred)
    assert_same(
        comparable(ours.decode(array).columns), comparable(ours._decode_all_with_fallback(array).columns), texts
    )


@pytest.mark.parametrize(
    ("days", "since"),
    [
        (2147483647, 2147483647), (-141427, -141427), (-141428, -141438), (-200000, -200009), (-354286, -354291),
        (-390810, -390814), (-500000, -500003), (-577000, -577001), (-719164, -719162), (-1000000, -999992),
        (-99999999, -99997958), (-214748349, -214743952), (-2147483648, -2147439564),
    ],
)  # fmt: skip
def test_day_numbers_as_text_use_the_hybrid_calendar_of_spark_1_5(days: int, since: int) -> None:
    """since: what from_json of Spark 4.3 made of them."""
    found = decoder("d date").decode(pa.array([b'{"d":"%011d"}' % days]))
    assert found.columns.field("d").cast(pa.int32()).to_pylist() == [since]


def test_day_numbers_as_text_may_have_leading_zeros() -> None:
    """The first is what from_json of Spark 4.3 made of it."""
    texts = [b"-00000111030007", b"-" + b"0" * 5000 + b"111030007", b"+-5", b"00000000002147483648", b"000000000000"]
    found = decoder("d date").decode(pa.array([b'{"d":"' + text + b'"}' for text in texts]))
    assert found.columns.field("d").cast(pa.int32()).to_pylist() == [-111027740, -111027740, None, None, 0]


@pytest.mark.parametrize(
    ("data", "replaced"),
    [
        (b"\xe6\xed\xa5\xe6\x9c\xac", "\ufffd\ufffd\u672c"), (b"\xed\xa5", "\ufffd"), (b"\xed\xa5a", "\ufffda"),
        (b"\xed\xa5\xa5", "\ufffd"), (b"\xed\xa5\xed\xa5", "\ufffd\ufffd"), (b"\xf1\x80\xed\xa5", "\ufffd\ufffd"),
        (b"\xed", "\ufffd"), (b"\xe0\x80", "\ufffd\ufffd"), (b"\xf0\x90\x80", "\ufffd"), (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)  # fmt: skip
def test_malformed_utf8_is_replaced_as_in_java(data: bytes, replaced: str) -> None:
    """replaced: what from_json of Spark 4.3 made of it."""
    found = decoder("t string").decode(pa.array([b'{"t":"' + data + b'"}']))
    assert found.columns.field("t").to_pylist() == [replaced]


def test_sliced_large_and_empty_arrays_are_decoded() -> None:
    ours = decoder("id bigint, tags array<string>")
    values = [b'{"id":1,"tags":["a"]}', None, b'{"id":2,"tags":[]}', b'{"id":3,"tags":["b","c"]}']
    rows = [{"id": 1, "tags": ["a"]}, None, {"id": 2, "tags": []}, {"id": 3, "tags": ["b", "c"]}]
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(values, kind)
        assert ours.decode(array).columns.to_pylist() == rows
        assert ours.decode(array.slice(1, 2)).columns.to_pylist() == rows[1:3]
        assert ours.decode(array.slice(4)).columns.to_pylist() == []


def test_arrays_beyond_the_initial_capacity_are_decoded() -> None:
    numbers = list(range(10_000))
    decoded = decoder("a array<int>").decode(pa.array([json.dumps({"a": numbers}).encode(), b'{"a":[1]}']))
    assert decoded.bad is None
    assert decoded.columns.to_pylist() == [{"a": numbers}, {"a": [1]}]


def test_long_numbers_beyond_the_initial_capacity_are_decoded() -> None:
    numbers = [i / 7 for i in range(1, 5000)]
    decoded = decoder("a array<double>, b float").decode(
        pa.array([json.dumps({"a": numbers, "b": 0.1234567891}).encode()])
    )
    assert decoded.columns.to_pylist() == [{"a": numbers, "b": float(np.float32(0.1234567891))}]


def test_long_numbers_in_successive_batches_are_decoded() -> None:
    ours = decoder("i bigint, x double, note string, y double")
    rows = [{"i": i, "x": i / 7, "note": f"note {i}", "y": i / 3} for i in range(1, 3000)]
    texts = pa.array([json.dumps(row).encode() for row in rows])
    decoded = [ours.decode(texts) for _ in range(4)]
    assert [one.columns.to_pylist() for one in decoded] == [rows] * 4


HOSTILE = {
    "10,000 levels that are not wanted": b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b',"id":1}',
    "10,000 levels of what is wanted": b'{"id":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "10,000 levels that do not end": b"[" * 10_000,
    "a number of 10,000 digits": b'{"id":' + b"9" * 10_000 + b"}",
    "a fraction of 10,000 digits": b'{"x":0.' + b"9" * 10_000 + b"}",
    "an exponent": b'{"price":1e999999999}',
    "invalid UTF-8 between tokens": b'{"id":1\xff}',
    "a name of 60,000 characters": b'{"' + b"n" * 60_000 + b'":1}',
    "only zero bytes": b"\0" * 1000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_value_is_malformed_and_its_neighbours_are_read(name: str) -> None:
    value = HOSTILE[name]
    good = b'{"id":7,"user":"u","price":1.5}'
    decoded = decoder("id bigint, user string, price decimal(10,2), _corrupt_record string").decode(
        pa.array([good, value, good])
    )
    assert decoded.bad is not None
    rows = [row for row in comparable(decoded.columns) if row is not None]
    assert [row["id"] for row in (rows[0], rows[2])] == [7, 7]
    assert decoded.bad.tolist() == [False, True, False]
    assert rows[1]["_corrupt_record"] == value
    assert len(decoded.why(1)) < 500


def test_sign_without_a_digit_is_named_as_by_jackson() -> None:
    decoded = decoder("a double").decode(pa.array([b'{"a":-x}']))
    assert decoded.bad is not None
    assert decoded.bad.tolist() == [True]
    assert "expected a digit (0-9) to follow the sign" in decoded.why(0)


def test_string_of_60_mb_takes_a_small_multiple_of_its_size() -> None:
    value = b'{"user":"' + b"x" * 60_000_000 + b'","id":1}'
    array = pa.array([value, b'{"id":2}'])
    ours = decoder("id bigint, user string")
    tracemalloc.start()
    decoded = ours.decode(array)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.bad is not None
    assert decoded.bad.tolist() == [True, False]
    assert decoded.columns[1].as_py() == {"id": 2, "user": None}
    assert peak < 6 * len(value)


def test_ddl_round_trip_keeps_schemas() -> None:
    schema = schema_of_ddl(DDL)
    assert schema_of_ddl(ddl_of_schema(schema)) == schema
    assert schema_of_ddl("`a b` long, s struct<`x``y`: int>").names == ["a b", "s"]
    for text in ("", "a", "a foo", "a decimal(40,2)", "a array<int", "a int, ", "a map<string>", "a int b int"):
        with pytest.raises(OptionError):
            schema_of_ddl(text)


@pytest.mark.parametrize(
    "text",
    [
        r"a int COMMENT 'it\'s', b string",
        'a INT comment "x, y: \\" z", b STRING NOT NULL COMMENT \'b\'',
        "STRUCT<a: INT COMMENT 'x', b: STRING>",
        "struct<a int not null, b string>",
        "Struct < a : int, b string >",
    ],
)
def test_ddl_with_comments_and_words_in_any_case_is_read(text: str) -> None:
    assert schema_of_ddl(text) == pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a int COMMENT x", "COMMENT must be followed by a text in quotes"),
        ("a int COMMENT", "COMMENT must be followed by a text in quotes"),
        ("a int NOT b", "expected NULL after NOT"),
        ("a 'int'", "expected a type, got ''int''"),
        ("a int COMMENT 'x", "''x' is not a token of a schema"),
    ],
)
def test_ddl_with_a_wrong_comment_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        schema_of_ddl(text)


@pytest.mark.parametrize("text", ["0", "-1", "-5"])
def test_depth_below_one_refuses_recursive_schemas_as_in_spark(text: str) -> None:
    assert depth_parser(15, strict=True)("recursiveFieldMaxDepth", text) < 1
    with pytest.raises(OptionError, match="is 16: expected 1 to 15, or 0 or less to refuse recursive schemas"):
        depth_parser(15, strict=True)("recursiveFieldMaxDepth", "16")


def test_invalid_formats_and_types_are_refused() -> None:
    with pytest.raises(OptionError, match="must be one of json"):
        format_of("xml")
    with pytest.raises(OptionError, match="two fields with one name"):
        decoder_of("json", {}, pa.schema([("a", pa.int64()), ("a", pa.string())]))
    with pytest.raises(OptionError, match="keys of a map in JSON are strings"):
        decoder_of("json", {}, pa.schema([("a", pa.map_(pa.int64(), pa.int64()))]))
    with pytest.raises(OptionError, match="JSON cannot be decoded to the type"):
        decoder_of("json", {}, pa.schema([("a", pa.duration("us"))]))
    with pytest.raises(OptionError, match="there is no time zone 'Mars'"):
        decoder_of("json", {"timezone": "Mars"}, pa.schema([("a", pa.int64())]))
