"""Columns and rows that Kafka or its connector would not take: refused in their words, and the directory is as it was.

tests/spark/test_batch_sink.py shows that Spark says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, NullType, StringType, StructField, StructType

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.sink.options import parse_write_options
from kafkalog_spark.sink.writers import WriteJob
from tests.sink.helpers.written_logs import everything, table, values, write

STRING, INT, LONG = StringType(), IntegerType(), LongType()
SCHEMAS: dict[str, tuple[list[tuple[str, DataType]], dict[str, str], str]] = {
    "no topic": ([("value", STRING)], {}, "topic option required when no 'topic' attribute is present."),
    "no value": ([("key", STRING)], {"topic": "t"}, "Required attribute 'value' not found"),
    "value": (
        [("value", INT)],
        {"topic": "t"},
        "value attribute unsupported type int. value must be a(n) string",
    ),
    "a void value": ([("value", NullType())], {"topic": "t"}, "value attribute unsupported type void"),
    "partition": (
        [("value", STRING), ("partition", LONG)],
        {"topic": "t"},
        "partition attribute unsupported type bigint. partition must be a(n) int",
    ),
    "topic": ([("value", STRING), ("topic", INT)], {}, "topic attribute unsupported type int. topic must be a(n) stri"),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_columns_are_checked_as_in_the_connector(tmp_path: Path, case: str) -> None:
    columns, options, text = SCHEMAS[case]
    schema = StructType([StructField(name, kind) for name, kind in columns])
    with pytest.raises(OptionError) as refused:
        WriteJob.open(parse_write_options({"path": str(tmp_path / "data"), **options}), schema)
    assert str(refused.value).startswith(text)
    assert not (tmp_path / "data").exists()


ROWS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a null topic": ([{"topic": "t"}] * 7 + [{"topic": None}], {}, "null topic present in the data"),
    "an unknown partition": ([{"partition": n} for n in range(8)], {"topic": "t"}, "has 1 partition, 0 to 0"),
    "a time before 1970": ([{"timestamp": -1}], {"topic": "t"}, "Invalid timestamp"),
    "an oversized record": (
        [{"value": b"a" * 3000}],
        {"topic": "t", "max_message_bytes": 2000, "batch_size": 1000},
        "at most 2000 are allowed; raise max.message.bytes or make the record smaller",
    ),
    "an internal topic": ([{"topic": "__consumer_offsets"}], {}, "'__consumer_offsets' is internal to Kafka"),
    "a null in the headers": ([{"headers": [None]}], {"topic": "t"}, "a header, or a header's key, is null"),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_that_kafka_would_not_take_fail_the_write(tmp_path: Path, case: str) -> None:
    rows, options, text = ROWS[case]
    write(tmp_path, values("there"), topic="t")
    before = everything(tmp_path)
    with pytest.raises(KafkalogError) as refused:
        write(tmp_path, table({"value": b"a", **row} for row in rows), **options)
    assert text in str(refused.value)
    assert everything(tmp_path) == before
