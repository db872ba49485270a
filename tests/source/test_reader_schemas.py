"""Schemas of the user's own: which are taken, what the rows are then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalog_spark.errors import OptionError
from tests.source.helpers.driver import Load, read
from tests.source.helpers.made_logs import (
    append,
    numbers,
)


def fields(*names_and_types: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind, True) for name, kind in names_and_types])


def test_user_schema_selects_and_orders_columns(three: Path) -> None:
    schema = fields(("timestamp", TimestampType()), ("value", StringType()), ("offset", LongType()))
    found = Load(three, schema=schema).scan().read()
    assert found.column_names == ["timestamp", "value", "offset"]
    assert found["value"].to_pylist() == numbers(0, 30) + numbers(100, 110)


def test_schema_names_are_case_insensitive_and_keep_their_case(three: Path) -> None:
    """As columns of Spark's, unless spark.sql.caseSensitive says otherwise."""
    schema = fields(("Value", StringType()), ("OFFSET", LongType()), ("timestamptype", IntegerType()))
    found = Load(three, schema=schema).scan().read()
    assert found.column_names == ["Value", "OFFSET", "timestamptype"]
    assert found["Value"].to_pylist() == numbers(0, 30) + numbers(100, 110)


def test_schema_without_columns_returns_all_rows(three: Path) -> None:
    batches = [batch for task in Load(three, schema=StructType([])).scan().tasks() for batch in task]
    assert [batch.num_columns for batch in batches] == [0] * len(batches)
    assert sum(batch.num_rows for batch in batches) == 40


def test_key_and_value_as_text_keep_nulls_and_empty_texts(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, ["ä", None, ""], keys=[None, "", "ключ"])
    found = Load(tmp_path, schema=fields(("key", StringType()), ("value", StringType()))).scan().read()
    assert found.to_pylist() == [
        {"key": None, "value": "ä"},
        {"key": "", "value": None},
        {"key": "ключ", "value": ""},
    ]


def test_columns_without_nulls_may_be_declared_not_null(three: Path) -> None:
    schema = StructType([StructField("offset", LongType(), False), StructField("topic", StringType(), False)])
    assert Load(three, schema=schema).scan().read().num_rows == 40


def test_headers_without_nulls_may_be_declared_not_null(golden: Path) -> None:
    header = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), True)])
    schema = StructType([StructField("headers", ArrayType(header, False), True)])
    found = Load(golden, schema=schema, subscribe="headers").scan().read()
    ours = read(golden, subscribe="headers", columns="headers")
    assert found["headers"].to_pylist() == ours["headers"].to_pylist()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (fields(("ofset", LongType())), "a column 'ofset', which a Kafka log does not have"),
        (fields(("offset", IntegerType())), "column 'offset' is int, expected bigint"),
        (fields(("key", IntegerType())), "column 'key' is int, expected binary or string"),
        (fields(("topic", BinaryType())), "column 'topic' is binary, expected string"),
        (
            fields(("headers", StringType())),
            "column 'headers' is string, expected array<struct<key:string,value:binary>>",
        ),
        (StructType([StructField("key", BinaryType(), False)]), "column 'key' is NOT NULL"),
        (fields(("offset", LongType()), ("offset", LongType())), "names a column twice"),
        (fields(("offset", LongType()), ("Offset", LongType())), "names a column twice"),
        (fields(("Offset", IntegerType())), "column 'Offset' is int, expected bigint"),
    ],
)
def test_unsupported_schema_is_refused(three: Path, schema: StructType, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        Load(three, schema=schema).scan()
    assert expected in str(caught.value)


def test_options_are_checked_with_a_user_schema(three: Path) -> None:
    with pytest.raises(OptionError, match="minPartitions must be positive"):
        Load(three, schema=fields(("offset", LongType())), minPartitions=0).scan()


@pytest.mark.parametrize(
    "columns", ["offset", "timestamp,offset", "value", "partition,topic", "headers", "timestampType"]
)
def test_any_selection_of_columns_equals_the_full_read(golden: Path, columns: str) -> None:
    full = read(golden, subscribe="transactions,headers,logappend", includeHeaders=True)
    found = read(golden, subscribe="transactions,headers,logappend", columns=columns)
    assert found.equals(full.select(columns.split(",")))
