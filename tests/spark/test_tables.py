"""Tables beside `records`, through real Spark: what docs/tables.md promises in SQL."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs


def load(spark: Any, name: str, **options: object) -> Any:
    return spark.read.format("kafkalog").options(table=name, **options).load(str(data_dir()))


@pytest.mark.parametrize("name", ["batches", "partitions", "groups", "transactional_ids"])
def test_table_rows_equal_those_read_with_arrow(spark: Any, name: str) -> None:
    """All of them, without Spark: tests/source/test_tables.py. These have every type that there is."""
    found = load(spark, name).toArrow()
    expected = LogDirs.open(data_dir()).table(name).read_all()
    assert found.column_names == expected.column_names
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_optional_columns_are_selected_by_a_schema(spark: Any) -> None:
    frame = spark.read.format("kafkalog").schema("topic string, codec string, compression_ratio double")
    rows = frame.options(table="batches", subscribe="java-zstd").load(str(data_dir())).collect()
    assert {row.codec for row in rows} == {"zstd"}
    assert all(row.compression_ratio > 1 for row in rows)


def test_sql_joins_records_with_the_batches_they_lie_in(spark: Any) -> None:
    """Who wrote this record?"""
    load(spark, "batches", subscribe="transactions").createOrReplaceTempView("batches")
    records = spark.read.format("kafkalog").option("subscribe", "transactions").load(str(data_dir()))
    records.createOrReplaceTempView("records")
    rows = spark.sql("""
        SELECT r.partition, r.offset, b.producer_id FROM records r JOIN batches b
        ON r.partition = b.partition AND r.offset BETWEEN b.base_offset AND b.last_offset
    """).collect()
    logs = golden_logs(KAFKA_4_3, "transactions", crashed=False)
    batches = [(log.partition, batch) for log in logs for path in log.segments() for batch in log.batches(path)]
    said = {
        (partition, offset): batch.producer_id
        for partition, batch in batches
        if not batch.control
        for offset in range(batch.base_offset, batch.last_offset + 1)
    }
    assert {(row.partition, row.offset): row.producer_id for row in rows} == said
