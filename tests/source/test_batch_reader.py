"""The batch reader as Spark drives it, without Spark: rows, filters, and what crosses process borders."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThanOrEqual, IsNotNull, LessThan
from pyspark.sql.types import LongType, StructField, StructType

from kafkalog_spark.source import pushdown
from tests.golden_data import GoldenLog, golden_logs
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.source.helpers.driver import Load, read
from tests.source.helpers.made_logs import (
    append,
)

OFFSET = ("offset",)


ONE_OF_EACH_KIND = {"transactions", "compacted", "segments", "codec-zstd", "mixed", "v0-lz4", "v1-compacted"}
"""Topics that `make test` cuts into tasks; `make test-slow` cuts the others."""
every_log = pytest.mark.parametrize("golden_log", golden_logs(), ids=str)
CUT_LOGS = [
    pytest.param(log, marks=() if log.topic in ONE_OF_EACH_KIND and log.partition == 0 else pytest.mark.slow)
    for log in golden_logs()
]


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def offsets(table: pa.Table) -> list[int]:
    return table["offset"].to_pylist()  # type: ignore[no-any-return]


def only(golden_log: GoldenLog) -> dict[str, Any]:
    return {"assign": json.dumps({golden_log.topic: [golden_log.partition]}), "includeHeaders": True}


def rows_of(golden_log: GoldenLog, **narrowed: bool) -> list[dict[str, Any]]:
    rows = golden_log.records(**narrowed)
    return [{name: value for name, value in row.items() if name != "committed"} for row in rows]


@every_log
def test_batch_reader_returns_the_records_of_kafkas_consumer(golden_log: GoldenLog) -> None:
    whole = read(golden_log.directory.parent, **only(golden_log))
    assert whole.schema.names == list(ALL_COLUMNS)
    assert plain_rows(whole.to_batches()) == rows_of(golden_log)
    assert plain_rows(read(golden_log.directory, includeHeaders=True).to_batches()) == rows_of(golden_log)


@every_log
def test_read_committed_returns_the_records_of_a_read_committed_consumer(golden_log: GoldenLog) -> None:
    found = read(golden_log.directory.parent, isolationLevel="read_committed", **only(golden_log))
    assert plain_rows(found.to_batches()) == rows_of(golden_log, committed_only=True)


@pytest.mark.parametrize("golden_log", CUT_LOGS, ids=str)
@pytest.mark.parametrize(
    ("cut", "isolation"),
    [
        ({"maxPartitionBytes": 1}, "read_committed"),
        ({"minPartitions": 23}, "read_uncommitted"),
        ({"maxRecordsPerPartition": 37}, "read_committed"),
    ],
    ids=["by bytes", "minPartitions", "maxRecordsPerPartition"],
)
def test_rows_do_not_depend_on_the_number_of_tasks(golden_log: GoldenLog, isolation: str, cut: dict[str, Any]) -> None:
    options = {**only(golden_log), "isolationLevel": isolation}
    assert read(golden_log.directory.parent, **options, **cut).equals(read(golden_log.directory.parent, **options))


def test_pushdown_off_returns_every_filter_to_spark(three: Path) -> None:
    filters = [IsNotNull(OFFSET), GreaterThanOrEqual(OFFSET, 20)]
    scan = Load(three, pushdown=False).scan(*filters)
    assert scan.residual == filters
    assert scan.read().num_rows == 40


@pytest.mark.parametrize("stays", [True, False], ids=["Spark 5", "Spark 4"])
def test_pushdown_auto_pushes_only_where_rows_stay_correct_and_logs_the_reason(
    three: Path, stays: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pushdown, "FILTERS_ARE_PER_SCAN", stays)
    pushdown._log_auto.cache_clear()  # once in a process
    wanted = GreaterThanOrEqual(OFFSET, 15)
    reader = Load(three)._source.reader(schema=Load(three).schema)
    with caplog.at_level(logging.INFO, "kafkalog_spark.source.pushdown"):
        assert reader.pushFilters([wanted]) == ([] if stays else [wanted])
        assert reader.pushFilters([wanted]) == ([] if stays else [wanted])
    (line,) = caplog.messages
    assert line.startswith("pushdown=auto: on, Spark" if stays else "pushdown=auto: off, Spark")
    assert ("(SPARK-58551)" in line) is not stays
    assert caplog.records[0].levelno == (logging.INFO if stays else logging.WARNING)
    rows = sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))
    assert rows == (15 if stays else 40)


def test_unsupported_filters_are_returned_to_spark(three: Path) -> None:
    unknown = EqualTo(("value",), b"3")
    scan = Load(three, pushdown=True).scan(IsNotNull(OFFSET), unknown, LessThan(OFFSET, 5))
    assert scan.residual == [unknown]
    assert offsets(scan.read()) == [*range(5), *range(5)]


def test_reader_without_pushdown_has_no_push_filters_method_for_spark(three: Path) -> None:
    # the test of plan_data_source_read.py: with it failing, a query is refused while the setting is off
    reader = Load(three)._source.reader(schema=Load(three).schema)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters


@pytest.mark.parametrize("schema", [None, StructType([StructField("offset", LongType(), True)])])
def test_options_without_effect_are_logged_once_per_load(
    three: Path, schema: StructType | None, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"kafka.bootstrap.servers": "h:9092", "kafka.group.id": "g"}
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        load = Load(three, schema=schema, **options)
        assert load.scan().read().num_rows == 40
        if schema is None:
            load.scan().read()
    assert caplog.messages == ["options without effect on kafkalog: kafka.bootstrap.servers, kafka.group.id"]


def test_reader_is_small_when_pickled_whatever_the_number_of_partitions(tmp_path: Path) -> None:
    for partition in range(50):
        append(tmp_path, "t", partition, ["x"])
    scan = Load(tmp_path).scan()
    assert len(scan.splits) == 50
    assert len(scan.pickled_reader) < 3000
    for task, pickled in zip(scan.splits_by_task, scan.pickled_partitions, strict=True):
        assert len(pickled) < 1000 + 200 * len(task)


def test_read_without_tasks_accepts_sparks_placeholder_partition(three: Path) -> None:
    scan = Load(three, subscribePattern="nothing").scan()
    assert scan.splits == []
    assert len(scan.pickled_partitions) == 1
    assert scan.read().num_rows == 0
    reader = pickle.loads(scan.pickled_reader)
    assert list(reader.read(None)) == []


def test_planning_loads_neither_kernels_nor_codecs(three: Path) -> None:
    script = (
        "import sys; from tests.source.helpers.driver import Load\n"
        f"assert len(Load({str(three)!r}, maxPartitionBytes=1).scan().splits) > 2\n"
        "loaded = {'numba', 'lz4', 'zstandard', 'snappy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_first_rows_are_yielded_before_the_whole_range_is_read(tmp_path: Path) -> None:
    # what makes show() and limit() quick: Spark drops the iterator when it has enough
    append(tmp_path, "t", 0, [str(i) for i in range(5000)], batch=500)
    (task,) = Load(tmp_path).scan().tasks()
    assert next(task).num_rows == 1024
    task.close()  # type: ignore[attr-defined]
