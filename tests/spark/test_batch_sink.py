"""df.write.format("kafkalog") in real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafkalog_spark.log.write.log_dir_lock import LogDirLock
from tests.sink.helpers.written_logs import check_log, everything, read, texts
from tests.spark.helpers.loads import fails


def save(df: Any, path: Path | None, mode: str = "append", **options: object) -> None:
    writer = df.write.format("kafkalog").mode(mode)
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), value)
    writer.save(None if path is None else str(path))


def test_second_write_appends_and_keeps_the_order_within_tasks(spark: Any, tmp_path: Path) -> None:
    for first in (0, 100):
        df = spark.range(first, first + 100, 1, 2).selectExpr("cast(id as string) value")
        save(df, tmp_path, topic="t")
    assert texts(tmp_path) == [str(n) for n in range(200)]
    check_log(tmp_path)


def test_failed_job_leaves_the_directory_unchanged(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) value")
    save(df, tmp_path, topic="t")
    before = everything(tmp_path)
    bad = df.selectExpr("value", "if(value = '99', raise_error('stop'), 0) partition")
    with pytest.raises(PySparkException, match="stop"):
        save(bad, tmp_path, topic="t")
    assert everything(tmp_path) == before
    with pytest.raises(PySparkException, match="stop"):
        save(bad, tmp_path / "new" / "data", topic="t")
    assert not (tmp_path / "new" / "data").exists()


def test_columns_are_checked_before_anything_is_created(spark: Any, tmp_path: Path) -> None:
    """All that is checked: tests/sink/test_refused_rows.py."""
    with fails() as failure:
        save(spark.sql("select null value"), tmp_path / "data", topic="t")
    assert "value attribute unsupported type void" in failure.line
    assert not (tmp_path / "data").exists()


def test_row_that_kafka_refuses_fails_the_write(spark: Any, tmp_path: Path) -> None:
    """All of these: tests/sink/test_refused_rows.py."""
    save(spark.sql("select 'there' value, 't' topic"), tmp_path)
    before = everything(tmp_path)
    with fails() as failure:
        save(spark.sql("select 'a' value, if(id = 7, null, 't') topic from range(8)"), tmp_path)
    assert "null topic present in the data" in failure.text
    assert everything(tmp_path) == before


def test_null_values_are_tombstones(spark: Any, tmp_path: Path) -> None:
    save(spark.sql("select 'k' key, cast(null as string) value"), tmp_path, topic="t")
    assert [(row["key"], row["value"]) for row in read(tmp_path)] == [(b"k", None)]


def test_overwrite_mode_is_refused_and_append_is_named(spark: Any, tmp_path: Path) -> None:
    with fails() as failure:
        save(spark.sql("select 'a' value"), tmp_path, mode="overwrite", topic="t")
    assert 'Save mode overwrite not allowed for Kafka; write with .mode("append"), the only save mode' in failure.line


def test_directory_that_a_broker_owns_is_refused_before_a_task_runs(spark: Any, tmp_path: Path) -> None:
    save(spark.sql("select 'a' value"), tmp_path, topic="t")
    held = LogDirLock.acquire(tmp_path)
    try:
        with fails() as failure:
            save(spark.sql("select 'a' value"), tmp_path, topic="t")
    finally:
        held.release()
    assert failure.line.startswith(f"{tmp_path}: a running broker owns this log directory")
    assert "kafka.bootstrap.servers" in failure.line


def test_log_append_time_is_equal_for_all_records(spark: Any, tmp_path: Path) -> None:
    df = spark.sql("select 'a' value, timestamp_millis(1700000000000) timestamp from range(0, 10, 1, 2)")
    save(df, tmp_path, topic="t", message_timestamp_type="LogAppendTime")
    rows = read(tmp_path)
    assert {row["timestampType"] for row in rows} == {1}
    assert len({row["timestamp"] for row in rows}) == 1
    assert rows[0]["timestamp"] > 1_750_000_000_000


def test_sql_timestamp_types_become_create_time(spark: Any, tmp_path: Path) -> None:
    for number, cell in enumerate(("timestamp_millis(1700000000123)", "timestamp_ntz'2023-11-14 22:13:20.123'",
                                   "1700000000123L")):  # fmt: skip
        save(spark.sql(f"select 'a' value, {cell} timestamp"), tmp_path, topic=f"t{number}")
    assert {(row["timestamp"], row["timestampType"]) for row in read(tmp_path)} == {(1_700_000_000_123, 0)}
