"""SQL: views, tables with their options in the statement, and what Spark does not hand to a source in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import fails


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    append(tmp_path / "logs", "orders", 0, numbers(0, 5))
    append(tmp_path / "logs", "other", 0, numbers(10, 12))
    return tmp_path / "logs"


@pytest.fixture
def table(spark: Any, logs: Path) -> Iterator[str]:
    options = f"OPTIONS (path '{logs}', subscribe 'orders') TBLPROPERTIES ('owned by' = 'us')"
    spark.sql(f"CREATE TABLE kafkalog_table USING kafkalog {options}")
    yield "kafkalog_table"
    spark.sql("DROP TABLE kafkalog_table")


def test_temporary_view_is_read_and_refuses_writes(spark: Any, logs: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING kafkalog OPTIONS (path '{logs}', subscribe 'orders')")
    assert spark.sql("SELECT count(*) FROM v").first()[0] == 5
    with fails() as failure:
        spark.sql("INSERT INTO v SELECT * FROM v")
    assert failure.line.startswith(
        "option 'subscribe' is a read option, and this is a write; a view over a log directory"
    )
    assert spark.sql("SELECT count(*) FROM v").first()[0] == 5


def test_table_is_read_with_the_options_in_the_query(spark: Any, logs: Path, table: str) -> None:
    with fails() as failure:
        spark.sql(f"SELECT * FROM {table}").collect()
    assert failure.line.startswith("no log directory is given; ")
    assert "SELECT ... FROM table WITH ('path' = '...', 'subscribe' = '...')" in failure.line
    query = f"SELECT count(*) FROM {table} WITH ('path' = '{logs}', 'subscribe' = 'other')"
    assert spark.sql(query).first()[0] == 2
    assert spark.read.option("path", str(logs)).option("subscribe", "orders").table(table).count() == 5


def test_table_is_written_to_with_the_options_in_the_query(spark: Any, tmp_path: Path, table: str) -> None:
    with fails() as failure:
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WITH ('path' = '{tmp_path}/logs', 'subscribe' = 'other')")
    assert "INSERT INTO table WITH ('path' = '...', 'topic' = '...')" in failure.line
    spark.sql("CREATE TABLE rows_to_kafka (key BINARY, value BINARY) USING kafkalog")
    try:
        new = f"WITH ('path' = '{tmp_path}/new', 'topic' = 'copied')"
        spark.sql(f"INSERT INTO rows_to_kafka {new} SELECT cast('k' AS BINARY), cast('v' AS BINARY)")
    finally:
        spark.sql("DROP TABLE rows_to_kafka")
    written = spark.read.format("kafkalog").option("subscribe", "copied").load(f"{tmp_path}/new")
    assert [(bytes(row.key), bytes(row.value)) for row in written.collect()] == [(b"k", b"v")]


def test_view_supports_columns_and_the_table_option(spark: Any, logs: Path) -> None:
    options = f"(path '{logs}', subscribe 'orders')"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW typed (offset BIGINT, value STRING) USING kafkalog OPTIONS {options}")
    assert [tuple(row) for row in spark.sql("SELECT * FROM typed WHERE offset < 2").collect()] == [(0, "0"), (1, "1")]
    spark.sql(f"CREATE OR REPLACE TEMP VIEW batches USING kafkalog OPTIONS (path '{logs}', table 'batches')")
    assert spark.sql("SELECT sum(record_count) FROM batches WHERE topic = 'orders'").first()[0] == 5
    spark.sql("CACHE TABLE kept AS SELECT * FROM typed")
    try:
        assert spark.sql("SELECT count(*) FROM kept").first()[0] == 5
    finally:
        spark.sql("UNCACHE TABLE kept")


def test_permanent_view_selects_from_a_table_with_options(spark: Any, logs: Path, table: str) -> None:
    query = f"SELECT * FROM {table} WITH ('path' = '{logs}', 'subscribe' = 'orders')"
    spark.sql(f"CREATE VIEW lasting_orders AS {query}")
    try:
        assert spark.newSession().sql("SELECT count(*) FROM lasting_orders").first()[0] == 5
    finally:
        spark.sql("DROP VIEW lasting_orders")


def test_sql_on_files_does_not_support_python_sources(spark: Any, logs: Path) -> None:
    """Documented as not working; this fails when a release of Spark can do it."""
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql(f"SELECT * FROM kafkalog.`{logs}`")
    with pytest.raises(Exception, match="FileFormat"):
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{logs}/out' USING kafkalog SELECT 'a' AS value")


def test_table_location_is_not_passed_to_python_sources(spark: Any, logs: Path) -> None:
    spark.sql(f"CREATE TABLE located USING kafkalog LOCATION '{logs}/orders-0'")
    try:
        with fails() as failure:
            spark.sql("SELECT * FROM located").collect()
        assert failure.line.startswith("no log directory is given; ")
    finally:
        spark.sql("DROP TABLE located")


def test_path_pattern_reads_directories_of_several_brokers(spark: Any, tmp_path: Path) -> None:
    for broker, end in (("broker-1", 5), ("broker-2", 8)):
        append(tmp_path / broker, "orders", 0, numbers(0, end))
        append(tmp_path / broker, "__consumer_offsets", 0, numbers(0, 1))
    df = spark.read.format("kafkalog").option("subscribe", "orders").load(f"{tmp_path}/broker-*")
    assert df.count() == 8
