"""Rows written as CSV without Spark: the fields that Spark's to_csv was seen to write, and what reads them again."""

from __future__ import annotations

import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.decoder import decoder_of, encoder_of
from tests.searches import examples
from tests.typed.random_rows import random_csv_rows


def written(rows: pa.Array, **options: str) -> list[str | None]:
    values = encoder_of("csv", options, pa.schema(list(rows.type))).encode(rows)
    values.validate(full=True)
    return [None if one is None else one.decode() for one in values.to_pylist()]


def fields(texts: list[str | None], **options: str) -> list[str | None]:
    """Each text as the second field of a line."""
    type_ = pa.struct([("q", pa.string()), ("p", pa.string())])
    lines = written(pa.array([{"q": "z", "p": one} for one in texts], type_), **options)
    return [line and line[line.index("z", 0) + 2 + (options.get("quoteall") == "true") :] for line in lines]


TEXTS = {
    "a": "a", "a b": "a b", "null": "null", "é日": "é日", "#a": "#a", "\\": "\\", "a\\b": "a\\b", "x\0y": "x\0y",
    "": '""', " ": '""', "\n": '""', " a ": "a", "\ta\x01": "a", "\x7fa": "\x7fa",
    "a,b": '"a,b"', " a,b ": '"a,b"', "a\nb": '"a\nb"', "a\rb": '"a\rb"', ",": '","', "\ta,": '"a,"',
    "\na": "a", "a\n": '"a"',
    '"': '"\\""', 'a"b': '"a\\"b"', '"a"b': '"\\"a\\"b"', ' "a" ': '"\\"a\\""', '""': '"\\"\\""',
    'a\\"b': '"a\\\\\\"b"', "a\\,b": '"a\\\\,b"', "a,b\\": '"a,b\\\\"',
}  # fmt: skip
"""Texts, and the fields of to_csv in Spark 4.3."""


def test_texts_have_quotes_where_to_csv_writes_them() -> None:
    assert fields(list(TEXTS)) == list(TEXTS.values())
    assert fields([None]) == [""]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"quoteall": "true"}, ['"a"', '""', '"a\\"b"', '"\\\\"', '""']),
        ({"quoteall": "true", "nullvalue": "NUL", "emptyvalue": "E"}, ['"a"', '"E"', '"a\\"b"', '"\\\\"', '"NUL"']),
        (
            {"quoteall": "true", "nullvalue": '"x', "emptyvalue": 'e"f'},
            ['"a"', '"e\\"f"', '"a\\"b"', '"\\\\"', '"\\"x"'],
        ),
        ({"escapequotes": "false"}, ["a", '""', 'a"b', "\\", ""]),
        ({"nullvalue": '"n"', "emptyvalue": " e "}, ["a", "e", '"a\\"b"', "\\", '"n"']),
        ({"nullvalue": "n,m", "emptyvalue": ""}, ["a", "", '"a\\"b"', "\\", '"n,m"']),
        ({"escape": '"'}, ["a", '""', '"a""b"', "\\", ""]),
        ({"chartoescapequoteescaping": "!"}, ["a", '""', '"a\\"b"', "\\", ""]),
        ({"quote": "'"}, ["a", '""', 'a"b', "\\", ""]),
    ],
)
def test_options_mean_what_they_mean_to_to_csv(options: dict[str, str], expected: list[str]) -> None:
    assert fields(["a", "", 'a"b', "\\", None], **options) == expected


def test_white_space_stays_where_it_is_asked_to() -> None:
    options = {"ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false"}
    assert fields([" a ", " ", "", "\n"], **options) == [" a ", " ", '""', '"\n"']
    assert fields([" a "], ignoreleadingwhitespace="false") == [" a"]


def test_a_line_that_would_be_a_comment_has_quotes() -> None:
    rows = pa.array([{"a": "#x", "b": "#y"}, {"a": " #x", "b": None}, {"a": "!x", "b": None}])
    assert written(rows) == ['"#x",#y', "#x,", "!x,"]
    assert written(rows, comment="!") == ["#x,#y", "#x,", '"!x",']


def test_a_row_of_which_nothing_is_left_is_null_as_in_spark() -> None:
    rows = pa.array([{"a": None}, {"a": ""}, None, {"a": "x"}], pa.struct([("a", pa.string())]))
    assert written(rows) == [None, '""', None, "x"]
    assert written(rows, nullvalue="-") == ["-", '""', None, "x"]


def test_other_types_are_as_java_writes_them() -> None:
    type_ = pa.struct(
        [("d", pa.float64()), ("f", pa.float32()), ("i", pa.int64()), ("b", pa.bool_()), ("dt", pa.date32()),
         ("ts", pa.timestamp("us", tz="UTC")), ("nt", pa.timestamp("us")), ("n", pa.decimal128(38, 18))]
    )  # fmt: skip
    row = {
        "d": 1.5e10,
        "f": 0.1,
        "i": -1,
        "b": True,
        "dt": 19724,
        "ts": 1704164645678000,
        "nt": 0,
        "n": Decimal("0E-18"),
    }
    nan = {"d": float("nan"), "f": -float("inf")}
    assert written(pa.array([row, nan], type_)) == [
        "1.5E10,0.1,-1,true,2024-01-02,2024-01-02T03:04:05.678Z,1970-01-01T00:00:00.000,0E-18",
        "NaN,-Infinity,,,,,,",
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"quote": ""}, "not empty on a write"),
        ({"sep": "é"}, "ASCII on a write"),
        ({"dateformat": "yyyy/MM/dd"}, "of reads"),
        ({"linesep": "x"}, "not taken here"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError, match=line):
        encoder_of("csv", options, pa.schema([("a", pa.string())]))


@pytest.mark.parametrize("type_", [pa.binary(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])])
def test_types_that_are_refused(type_: Any) -> None:
    with pytest.raises(OptionError, match="is not written as CSV"):
        encoder_of("csv", {}, pa.schema([("a", type_)]))


@pytest.mark.parametrize("seed", range(examples(30)))
def test_what_is_written_is_read_again(seed: int) -> None:
    """White space at the ends of texts is lost, and what is less than a millisecond; infinities have other words."""
    rng = Random(seed)
    rows = random_csv_rows(rng, 50)
    signs = rng.choice(
        [{}, {"sep": ";", "quote": "'", "escape": "'"}, {"sep": "\\t"}, {"escape": '"', "quoteall": "true"}]
    )
    words = {"positiveinf": "Infinity", "negativeinf": "-Infinity", "nullvalue": "NUL"}
    values = encoder_of("csv", {**signs, "nullvalue": "NUL"}, pa.schema(list(rows.type))).encode(rows)
    found = decoder_of("csv", {**signs, **words}, pa.schema(list(rows.type))).decode(values)
    assert found.bad is None
    assert [as_read(row) for row in found.columns.to_pylist()] == [as_read(row) for row in rows.to_pylist()]


def as_read(row: dict[str, Any] | None) -> Any:
    return None if row is None else {name: _as_read(value) for name, value in row.items()}


def _as_read(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip("".join(map(chr, range(33))))
    if isinstance(value, datetime.datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return str(value) if isinstance(value, float) else value
