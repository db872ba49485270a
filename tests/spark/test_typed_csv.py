"""format("kafkalog") with value.format=csv means what Spark's from_csv and to_csv mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.typed.decoder import encoder_of
from tests.source.helpers.made_logs import append
from tests.spark.helpers.loads import fails, load
from tests.spark.helpers.random_csv import DDL, random_lines
from tests.spark.helpers.spark_functions import assert_same, by_spark, by_us, frame_of
from tests.typed.random_rows import Limits, random_csv_rows

WITH_CORRUPT = f"{DDL}, _corrupt_record string"
OPTIONS: dict[str, Mapping[str, str]] = {
    "defaults": {},
    "semicolons": {"sep": ";", "quote": "'", "escape": "'"},
    "tabs": {"delimiter": "\\t", "escape": '"'},
    "no quotes": {"sep": "|", "quote": "", "escape": ""},
    "words": {"nullValue": "NA", "emptyValue": "nothing", "nanValue": "nan", "positiveInf": "INF", "negativeInf": "-1"},
    "white space": {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true", "comment": "#"},
    "escaped escapes": {"charToEscapeQuoteEscaping": "#"},
    "patterns": {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss",
        "dateFormat": "yyyy/MM/dd",
    },
    "patterns and fallback": {
        "timestampFormat": "yyyy-MM-dd HH:mm:ss",
        "dateFormat": "yyyy/MM/dd",
        "enableDateTimeParsingFallback": "true",
    },
    "no fallback": {"enableDateTimeParsingFallback": "false"},
    "zone": {"timeZone": "Europe/Berlin"},
    "no effect": {"header": "true", "inferSchema": "true", "enforceSchema": "false", "quoteAll": "true"},
}
SIGNS = {"semicolons": (";", "'", "'"), "tabs": ("\t", '"', '"'), "no quotes": ("|", '"', "\\")}


def compare(spark: Any, name: str, count: int, seed: int) -> None:
    separator, quote, escape = SIGNS.get(name, (",", '"', "\\"))
    values = random_lines(count, seed, separator=separator, quote=quote, escape=escape)
    options = {"timeZone": "UTC", **OPTIONS[name]}
    theirs = by_spark(spark, "from_csv", values, WITH_CORRUPT, options)
    ours = by_us("csv", values, WITH_CORRUPT, options)
    for one, other, value in zip(ours, theirs, values, strict=True):
        if not value and one is not None and other is not None:  # Spark has the text of the value before
            one["_corrupt_record"] = other["_corrupt_record"]
    assert_same(ours, theirs, values)


def test_a_sample_is_decoded_as_by_from_csv(spark: Any) -> None:
    compare(spark, "defaults", 60, 1)


@pytest.mark.parametrize("name", OPTIONS)
def test_random_values_are_decoded_as_by_from_csv(spark: Any, name: str) -> None:
    compare(spark, name, 400, len(name))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OPTIONS)
def test_twenty_thousand_random_values_are_decoded_as_by_from_csv(spark: Any, name: str) -> None:
    compare(spark, name, 20_000, 20 + len(name))


WRITING: dict[str, Mapping[str, str]] = {
    "defaults": {},
    "semicolons": {"sep": ";", "quote": "'", "escape": "'"},
    "tabs": {"delimiter": "\\t", "escape": '"', "quoteAll": "true"},
    "words": {"nullValue": "NA", "emptyValue": "nothing"},
    "odd words": {"nullValue": '"a', "emptyValue": " x,y ", "quoteAll": "true"},
    "white space": {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false", "comment": "x"},
    "no escaped quotes": {"escapeQuotes": "false", "charToEscapeQuoteEscaping": "!"},
    "zone": {"timeZone": "America/New_York"},
    "no effect": {"header": "true", "nanValue": "nan", "positiveInf": "INF", "inferSchema": "true"},
}


def compare_written(spark: Any, name: str, seed: int, count: int) -> None:
    from pyspark.sql import functions

    rows = random_csv_rows(Random(seed), count, Limits(first_day=-4_000_000, last_day=6_000_000))
    options = {"timeZone": "UTC", **WRITING[name]}
    encoder = encoder_of("csv", {key.lower(): text for key, text in options.items()}, pa.schema(list(rows.type)))
    ours = [None if one is None else one.decode() for one in encoder.encode(rows).to_pylist()]
    theirs = frame_of(spark, rows).repartition(1).select(functions.to_csv("row", options).alias("text"))
    wrong = [
        (one, other)
        for one, other in zip(ours, theirs.toArrow()["text"].to_pylist(), strict=True)
        if one != other and not same_numbers(one, other)
    ]
    assert wrong == [], f"{len(wrong)} of {count}"


def same_numbers(one: str | None, other: str | None) -> bool:
    """Whether they differ in the digits of fractions only: Java before 19 writes some with more than it needs."""
    if one is None or other is None:
        return False
    parts, others = re.split(r"([-\d.E]+)", one), re.split(r"([-\d.E]+)", other)
    if len(parts) != len(others):
        return False
    pairs = zip(parts, others, strict=True)
    return all(a == b or ("." in a and np.float32(a) == np.float32(b)) for a, b in pairs)


@pytest.mark.parametrize("name", ["defaults", "odd words", "white space"])
def test_random_rows_are_written_as_by_to_csv(spark: Any, name: str) -> None:
    compare_written(spark, name, len(name), 200)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WRITING)
def test_twenty_thousand_random_rows_are_written_as_by_to_csv(spark: Any, name: str) -> None:
    for seed in range(100, 120):
        compare_written(spark, name, seed, 1000)


def test_a_topic_is_written_and_read_back(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id, concat('a,', id) AS user, id / 4 AS amount FROM range(5)")
    writer = frame.write.format("kafkalog").mode("append").option("topic", "made").option("value.format", "csv")
    writer.option("value.sep", ";").option("value.quoteAll", "true").save(str(tmp_path / "logs"))
    found = load(spark, tmp_path / "logs", "id long, user string, amount double", **{"value.format": "csv", "sep": ";"})
    assert sorted(found.collect()) == sorted(frame.collect())
    assert load(spark, tmp_path / "logs", "value string").where("value like '%3%'").collect() == [('"3";"a,3";"0.75"',)]


VALUES = ["1,a,1.5", 'x,"b,c",2', None, "", "4", "5,é,7,more"]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0: VALUES, of which the second and the last three are bad."""
    path = tmp_path_factory.mktemp("typed_csv")
    append(path, "orders", 0, VALUES, keys=[f"{i};k" for i in range(len(VALUES))])
    return path


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("offset").collect()]


def test_columns_by_their_places(spark: Any, log_dir: Path) -> None:
    frame = load(
        spark, log_dir, "id long, user string, offset long, amount double, _corrupt_record string",
        **{"value.format": "csv"},
    )  # fmt: skip
    assert rows(frame) == [
        (1, "a", 0, 1.5, None),
        (None, "b,c", 1, 2.0, 'x,"b,c",2'),
        (None, None, 2, None, None),
        (None, None, 3, None, None),
        (4, None, 4, None, "4"),
        (5, "é", 5, 7.0, "5,é,7,more"),
    ]


def test_some_of_the_columns_of_the_values_and_keys(spark: Any, log_dir: Path) -> None:
    options = {
        "value.format": "csv",
        "value.schema": "id long, user string, amount double",
        "key.format": "csv",
        "key.sep": ";",
    }
    frame = load(spark, log_dir, "offset long, value struct<amount: double>, key struct<n: int, k: string>", **options)
    assert rows(frame)[:2] == [(0, (1.5,), (0, "k")), (1, (2.0,), (1, "k"))]
    dropped = load(spark, log_dir, "amount double, offset long", mode="DROPMALFORMED", **options)
    assert [offset for _, offset in rows(dropped)] == [0, 1, 2]


def test_a_bad_value_fails_the_query_by_mode(spark: Any, log_dir: Path) -> None:
    with fails() as failure:
        load(
            spark, log_dir, "id long, user string, amount double", mode="FAILFAST", **{"value.format": "csv"}
        ).collect()
    assert "orders-0 (offset 1): the value cannot be read as csv: id: no whole number" in failure.line


@pytest.mark.parametrize(
    ("schema", "options", "line"),
    [
        ("id long", {"multiLine": "true"}, "option 'multiLine' is not taken here"),
        ("id long", {"sep": "||"}, "option 'sep' must be one character"),
        ("id long", {"quote": "ab"}, "option 'quote' must be one character or empty"),
        ("id long", {"unescapedQuoteHandling": "RAISE_ERROR"}, "must be STOP_AT_DELIMITER"),
        ("id long", {"value.allowComments": "true"}, "the format csv has no option 'allowcomments'"),
        ("id long, tags array<string>", {}, "column 'tags': the type list<"),
        ("name string", {"value.schema": "id long"}, "the values have no field name"),
        (None, {}, "CSV says nothing of its columns, and neither does an option"),
    ],
)
def test_what_is_refused(spark: Any, log_dir: Path, schema: str | None, options: Mapping[str, str], line: str) -> None:
    with fails() as failure:
        load(spark, log_dir, schema, **{"value.format": "csv", **options}).collect()
    assert line in failure.line
