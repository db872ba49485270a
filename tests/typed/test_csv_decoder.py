"""The decoder of CSV without Spark: the kernel and plain Python give the same, and no value does harm."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.typed.csv_format import CsvDecoder
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import decoder_of
from tests.spark.helpers.random_csv import DDL, random_lines
from tests.spark.helpers.spark_functions import assert_same, comparable


def decoder(ddl: str, **options: str) -> CsvDecoder:
    made = decoder_of("csv", options, schema_of_ddl(ddl))
    assert isinstance(made, CsvDecoder)
    return made


@pytest.mark.parametrize(
    "options",
    [{}, {"timezone": "Asia/Tokyo"}, {"nullvalue": "1", "nanvalue": "2", "comment": "2"}, {"quote": "", "sep": ";"}],
)
def test_the_kernel_gives_what_plain_python_gives(options: dict[str, str]) -> None:
    values = random_lines(2000, seed=len(options), separator=options.get("sep", ","))
    array = pa.array(values, pa.binary())
    ours = decoder(f"{DDL}, _corrupt_record string", **options)
    fast, slow = ours.decode(array), ours._slow_rows(array)
    assert_same(comparable(fast.columns), comparable(slow.columns), values)
    assert fast.bad is not None
    assert slow.bad is not None
    assert np.array_equal(fast.bad, slow.bad)
    first = int(np.argmax(fast.bad))
    assert fast.why(first) == slow.why(first)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (b'"a\f', '"a\f'), (b"a,b,c\f", "a,b,c\f"), (b"a,b,c\r\f", "a,b,c\r\f"), (b"a,b,c\n", "a,b,c"),
        (b"a,b,c\r\n", "a,b,c"), (b"a,b,c\n\n", "a,b,c\n"),
    ],
)  # fmt: skip
def test_the_corrupt_record_is_without_the_line_break_at_its_end(value: bytes, seen: str) -> None:
    """seen: what from_csv of Spark 4.3 made of it. A form feed is none."""
    found = decoder("id bigint, t string, _corrupt_record string").decode(pa.array([value]))
    assert found.columns.field("_corrupt_record").to_pylist() == [seen]


def test_dates_without_a_pattern_and_without_another_form() -> None:
    """As from_csv of Spark 4.3 reads them."""
    texts = ["0000-01-01", "-0044-03-15", "+12345-01-01", "2024-01-02T03", "12345-01-01", "1950-7-03", "+2024-01-02"]
    found = decoder("d date", enabledatetimeparsingfallback="false").decode(pa.array([text.encode() for text in texts]))
    assert found.columns.field("d").cast(pa.int32()).to_pylist() == [-719528, -735525, 3789391, None, None, None, None]


def test_most_plain_values_are_decided_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = decoder("id bigint, user string, amount double, at timestamp, flag boolean, day date, price decimal(10,2)")

    def never(values: object) -> None:
        raise AssertionError("decided value by value")

    monkeypatch.setattr(ours, "_slow_rows", never)
    lines = ['7,"a, b",2.5,2024-01-02T03:04:05.678Z,true,2024-01-02,9.99', ",,,,,,", "-1,é,1e300,,false,,0"]
    found = ours.decode(pa.array([*(line.encode() for line in lines), None], pa.binary()))
    assert found.bad is None
    assert [row and row["user"] for row in found.columns.to_pylist()] == ["a, b", None, "é", None]


def test_pieces_of_arrays_large_arrays_and_empty_ones() -> None:
    ours = decoder("id bigint, user string")
    values = [b"1,a", None, b"2,", b'3,"b"']
    rows = [{"id": 1, "user": "a"}, None, {"id": 2, "user": None}, {"id": 3, "user": "b"}]
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(values, kind)
        assert ours.decode(array).columns.to_pylist() == rows
        assert ours.decode(array.slice(1, 2)).columns.to_pylist() == rows[1:3]
        assert ours.decode(array.slice(4)).columns.to_pylist() == []


def test_more_long_numbers_than_there_is_room_for() -> None:
    numbers = [i / 7 for i in range(1, 5000)]
    found = decoder("a double").decode(pa.array([repr(number).encode() for number in numbers]))
    assert [row["a"] for row in found.columns.to_pylist()] == numbers


@pytest.mark.parametrize(
    "value",
    [b'"' * 100_000, b'"a" ' * 20_000, b"\\" * 100_000, b'"a"\\' * 20_000, b"," * 100_000, b"\0" * 1000, b"9" * 10_000],
    ids=["quotes", "parts", "escapes", "escaped parts", "fields", "zero bytes", "digits"],
)
def test_a_hostile_value_is_bad_and_its_neighbours_are_not(value: bytes) -> None:
    found = decoder("id bigint").decode(pa.array([b"1", value, b"3"]))
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False]
    assert found.columns.to_pylist() == [{"id": 1}, {"id": None}, {"id": 3}]
    assert found.why(1)


def test_a_field_longer_than_the_kernel_takes() -> None:
    text = "x" * (1 << 24)
    assert decoder("a string").decode(pa.array([text.encode()])).columns[0].as_py() == {"a": text}
