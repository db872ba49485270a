"""Columns and rows that Kafka or its connector would not take: refused in their words, and the directory is as it was.

tests/spark/test_batch_sink.py shows that Spark says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, NullType, StringType, StructField, StructType

from kafkalog_spark.errors import InvalidRecord, KafkalogError, OptionError
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, MAX_TIMESTAMP_MS
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.sink.columns import sink_columns
from kafkalog_spark.sink.option_parsing import parse_write_options
from kafkalog_spark.sink.producer import ProduceTask
from kafkalog_spark.sink.writer import KafkaLogBatchWriter
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
        KafkaLogBatchWriter(parse_write_options({"path": str(tmp_path / "data"), **options}), schema)
    assert str(refused.value).startswith(text)
    assert not (tmp_path / "data").exists()


ROWS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a null topic": ([{"topic": "t"}] * 7 + [{"topic": None}], {}, "null topic present in the data"),
    "an unknown partition": ([{"partition": n} for n in range(8)], {"topic": "t"}, "has 1 partition, 0 to 0"),
    "a time before 1970": ([{"timestamp": -1}], {"topic": "t"}, "Invalid timestamp"),
    "what decompresses too far": (
        [{"value": bytes(MAX_DECOMPRESSED + 1)}],
        {"topic": "t", "compression_type": "zstd"},
        "(maxDecompressedBatchBytes); make the record or batch.size smaller, or write with compression.type=none",
    ),
    "an oversized record": (
        [{"value": b"a" * 3000}],
        {"topic": "t", "max_message_bytes": 2000, "batch_size": 1000},
        "at most 2000 are allowed; raise max.message.bytes or make the record smaller",
    ),
    "an internal topic": ([{"topic": "__consumer_offsets"}], {}, "'__consumer_offsets' is internal to Kafka"),
    "a null in the headers": ([{"headers": [None]}], {"topic": "t"}, "a header, or the key of a header, is null"),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_that_kafka_refuses_fail_the_write(tmp_path: Path, case: str) -> None:
    rows, options, text = ROWS[case]
    write(tmp_path, values("there"), topic="t")
    before = everything(tmp_path)
    with pytest.raises(KafkalogError) as refused:
        write(tmp_path, table({"value": b"a", **row} for row in rows), **options)
    assert text in str(refused.value)
    assert everything(tmp_path) == before


def test_timestamp_beyond_sparks_range_is_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"value": [b"a"], "timestamp": [MAX_TIMESTAMP_MS + 1]})
    with pytest.raises(InvalidRecord, match=f"Invalid timestamp: {MAX_TIMESTAMP_MS + 1}. In micro"):
        write(tmp_path, batch, topic="t")
    write(tmp_path, batch, topic="t", message_timestamp_type="LogAppendTime")  # which the column has no part in


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_at_the_limits_are_read_back(tmp_path: Path, codec: str) -> None:
    overhead = 17  # of the record beside its value: lengths, attributes, deltas, no key, no headers
    size = MAX_DECOMPRESSED - overhead if codec == "lz4" else MAX_DECOMPRESSED + 1
    batch = pa.record_batch({"value": [bytes(size)], "timestamp": [MAX_TIMESTAMP_MS]})
    write(tmp_path, batch, topic="t", compression_type=codec, max_message_bytes=1 << 27)
    (found,) = LogDirs.open(tmp_path).scan("t")
    assert [len(one) for one in found["value"].to_pylist()] == [size]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [MAX_TIMESTAMP_MS * 1000]


@pytest.mark.parametrize("name", ["compression.type", "compression.codec"])
def test_batch_over_the_decompression_limit_is_not_sent_to_a_broker(name: str) -> None:
    schema = StructType([StructField("key", STRING), StructField("value", STRING)])
    half = "a" * (MAX_DECOMPRESSED // 2 + 1)
    batch = pa.record_batch({"key": [half, None], "value": [half, None]})
    options = {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1", f"kafka.{name}": "lz4"}
    task = ProduceTask(parse_write_options(options), sink_columns(schema, "t"), None)
    with pytest.raises(InvalidRecord, match="maxDecompressedBatchBytes"):
        task.run(iter([batch]))
    with pytest.raises(InvalidRecord, match="Invalid timestamp"):
        task.run(iter([pa.record_batch({"value": ["a"], "timestamp": [MAX_TIMESTAMP_MS + 1]})]))
