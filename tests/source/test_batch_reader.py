"""The batch reader as Spark drives it, without Spark: rows, schemas, filters, errors."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThanOrEqual, IsNotNull, LessThan
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

from kafkalog_spark.errors import CorruptBatch, KafkalogError, NotALogDirectory, OptionError
from tests.golden_data import GoldenLog, golden_logs
from tests.log.rows import ALL_COLUMNS, plain_rows
from tests.source.driver import Load, Scan, read
from tests.source.made_logs import (
    FIRST_TIMESTAMP,
    append,
    numbers,
)

OFFSET, TIMESTAMP, PARTITION = ("offset",), ("timestamp",), ("partition",)


every_log = pytest.mark.parametrize("golden_log", golden_logs(), ids=str)


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def offsets(table: pa.Table) -> list[int]:
    return table["offset"].to_pylist()  # type: ignore[no-any-return]


def only(golden_log: GoldenLog) -> dict[str, Any]:
    return {"assign": json.dumps({golden_log.topic: [golden_log.partition]}), "includeHeaders": True}


def rows_of(golden_log: GoldenLog, **narrowed: bool) -> list[dict[str, Any]]:
    rows = golden_log.records(**narrowed)
    return [{name: value for name, value in row.items() if name != "committed"} for row in rows]


# Golden directories


@every_log
def test_every_record_is_the_one_that_the_consumer_returned(golden_log: GoldenLog) -> None:
    whole = read(golden_log.directory.parent, **only(golden_log))
    assert whole.schema.names == list(ALL_COLUMNS)
    assert plain_rows(whole.to_batches()) == rows_of(golden_log)
    assert plain_rows(read(golden_log.directory, includeHeaders=True).to_batches()) == rows_of(golden_log)


@every_log
def test_read_committed_is_what_the_read_committed_consumer_returned(golden_log: GoldenLog) -> None:
    found = read(golden_log.directory.parent, isolationLevel="read_committed", **only(golden_log))
    assert plain_rows(found.to_batches()) == rows_of(golden_log, committed_only=True)


@every_log
@pytest.mark.parametrize(
    ("cut", "isolation"),
    [
        ({"maxPartitionBytes": 1}, "read_committed"),
        ({"minPartitions": 23}, "read_uncommitted"),
        ({"maxRecordsPerPartition": 37}, "read_committed"),
    ],
    ids=["by bytes", "minPartitions", "maxRecordsPerPartition"],
)
def test_however_it_is_cut_the_rows_are_the_same(golden_log: GoldenLog, isolation: str, cut: dict[str, Any]) -> None:
    options = {**only(golden_log), "isolationLevel": isolation}
    assert read(golden_log.directory.parent, **options, **cut).equals(read(golden_log.directory.parent, **options))


# Filters


def test_without_pushdown_every_filter_goes_back(three: Path) -> None:
    filters = [IsNotNull(OFFSET), GreaterThanOrEqual(OFFSET, 20)]
    scan = Load(three).scan(*filters)
    assert scan.residual == filters
    assert scan.read().num_rows == 40


def test_filters_that_are_not_applied_here_go_back(three: Path) -> None:
    unknown = EqualTo(("value",), b"3")
    scan = Load(three, pushdown=True).scan(IsNotNull(OFFSET), unknown, LessThan(OFFSET, 5))
    assert scan.residual == [unknown]
    assert offsets(scan.read()) == [*range(5), *range(5)]


def test_spark_takes_the_reader_for_one_without_push_filters(three: Path) -> None:
    # the test of plan_data_source_read.py: with it failing, a query is refused while the setting is off
    reader = Load(three)._source.reader(schema=Load(three).schema)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters


# Schemas


def fields(*names_and_types: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind, True) for name, kind in names_and_types])


def test_a_schema_of_the_users_own_selects_and_orders_columns(three: Path) -> None:
    schema = fields(("timestamp", TimestampType()), ("value", StringType()), ("offset", LongType()))
    found = Load(three, schema=schema).scan().read()
    assert found.column_names == ["timestamp", "value", "offset"]
    assert found["value"].to_pylist() == numbers(0, 30) + numbers(100, 110)


def test_a_schema_without_columns_has_the_rows_all_the_same(three: Path) -> None:
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


def test_never_null_columns_may_be_declared_so(three: Path) -> None:
    schema = StructType([StructField("offset", LongType(), False), StructField("topic", StringType(), False)])
    assert Load(three, schema=schema).scan().read().num_rows == 40


def test_headers_may_be_declared_without_nulls_where_there_are_none(golden: Path) -> None:
    header = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), True)])
    schema = StructType([StructField("headers", ArrayType(header, False), True)])
    found = Load(golden, schema=schema, subscribe="headers").scan().read()
    ours = read(golden, subscribe="headers", columns="headers")
    assert found["headers"].to_pylist() == ours["headers"].to_pylist()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (fields(("ofset", LongType())), "a column 'ofset', a Kafka log has none"),
        (fields(("offset", IntegerType())), "column 'offset' is int, expected bigint"),
        (fields(("key", IntegerType())), "column 'key' is int, expected binary or string"),
        (fields(("topic", BinaryType())), "column 'topic' is binary, expected string"),
        (
            fields(("headers", StringType())),
            "column 'headers' is string, expected array<struct<key:string,value:binary>>",
        ),
        (StructType([StructField("key", BinaryType(), False)]), "column 'key' is NOT NULL"),
        (fields(("offset", LongType()), ("offset", LongType())), "names a column twice"),
    ],
)
def test_a_schema_that_no_log_has_is_refused(three: Path, schema: StructType, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        Load(three, schema=schema).scan()
    assert expected in str(caught.value)


def test_options_are_checked_with_a_schema_too(three: Path) -> None:
    with pytest.raises(OptionError, match="minPartitions must be positive"):
        Load(three, schema=fields(("offset", LongType())), minPartitions=0).scan()


@pytest.mark.parametrize(
    "columns", ["offset", "timestamp,offset", "value", "partition,topic", "headers", "timestampType"]
)
def test_any_columns_are_those_of_the_full_read(golden: Path, columns: str) -> None:
    full = read(golden, subscribe="transactions,headers,logappend", includeHeaders=True)
    found = read(golden, subscribe="transactions,headers,logappend", columns=columns)
    assert found.equals(full.select(columns.split(",")))


# What crosses process borders


def test_the_reader_is_small_when_pickled_whatever_the_number_of_partitions(tmp_path: Path) -> None:
    for partition in range(50):
        append(tmp_path, "t", partition, ["x"])
    scan = Load(tmp_path).scan()
    assert len(scan.splits) == 50
    assert len(scan.pickled_reader) < 3000
    assert max(map(len, scan.pickled_partitions)) < 1000


def test_no_task_at_all_is_the_partition_that_spark_makes_up(three: Path) -> None:
    scan = Load(three, subscribePattern="nothing").scan()
    assert scan.splits == []
    assert len(scan.pickled_partitions) == 1
    assert scan.read().num_rows == 0
    reader = pickle.loads(scan.pickled_reader)
    assert list(reader.read(None)) == []


def test_planning_loads_neither_kernels_nor_codecs(three: Path) -> None:
    script = (
        "import sys; from tests.source.driver import Load\n"
        f"assert len(Load({str(three)!r}, maxPartitionBytes=1).scan().splits) > 2\n"
        "loaded = {'numba', 'lz4', 'zstandard', 'snappy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_rows_come_before_the_range_is_read_to_its_end(tmp_path: Path) -> None:
    # what makes show() and limit() quick: Spark drops the iterator when it has enough
    append(tmp_path, "t", 0, [str(i) for i in range(5000)], batch=500)
    (task,) = Load(tmp_path).scan().tasks()
    assert next(task).num_rows == 1024
    task.close()  # type: ignore[attr-defined]


# Errors


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def failure(scan: Callable[[], Scan]) -> KafkalogError:
    with pytest.raises(KafkalogError) as caught:
        scan().read()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_damaged_batch_names_partition_file_position_and_offset(three: Path) -> None:
    log = three / "t-0" / f"{10:020d}.log"
    flip(log, 100)
    error = failure(lambda: Load(three).scan())
    assert isinstance(error, CorruptBatch)
    assert (error.topic_partition, error.path, error.position, error.offset) == ("t-0", str(log), 0, 10)
    assert str(error).startswith(f"t-0 {log} at byte 0 (offset 10): ")


def test_rows_of_tasks_that_do_not_touch_the_damage_are_given(three: Path) -> None:
    flip(three / "t-0" / f"{10:020d}.log", 100)
    assert values(read(three, startingOffsets='{"t":{"0":20,"1":-2}}')) == numbers(20, 30) + numbers(100, 110)


def test_a_segment_that_cannot_be_opened_is_named(three: Path) -> None:
    log = three / "t-0" / f"{10:020d}.log"
    log.unlink()
    log.symlink_to(log.name)  # a loop: fails for root too, unlike missing permissions
    error = failure(lambda: Load(three).scan())
    assert isinstance(error, NotALogDirectory)
    assert (error.topic_partition, error.path) == ("t-0", str(log))
    assert "cannot be opened: Too many levels of symbolic links" in str(error)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "missing"}, "holds no topic missing; it holds t"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":1}}'},
            "Partitions specified for Kafka start offsets don't match what are assigned",
        ),
        (
            {"startingOffsets": '{"t":{"0":1,"1":0}}', "endingOffsets": '{"t":{"0":0,"1":0}}'},
            "start offset 1 is greater",
        ),
        (
            {"startingOffsets": '{"t":{"0":31,"1":0}}'},
            "resolved start offset 31 is greater than the resolved end offset 30",
        ),
        ({"endingOffsets": '{"t":{"0":31,"1":0}}'}, "the log holds [0, 30)"),
        (
            {"startingTimestamp": FIRST_TIMESTAMP + 10},
            "No offset matched from request of topic-partition t-0 and timestamp",
        ),
        ({"colums": "offset"}, "unknown option 'colums'; did you mean 'columns'?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_cannot_be_read_as_asked_is_said(three: Path, options: dict[str, object], expected: str) -> None:
    assert expected in str(failure(lambda: Load(three, **options).scan()))


def test_a_path_that_is_no_log_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for path, what in ((tmp_path / "missing", "does not exist"), (tmp_path / "docs", "is not a Kafka log directory")):
        error = failure(lambda path=path: Load(path).scan())  # type: ignore[misc]
        assert isinstance(error, NotALogDirectory)
        assert str(error).startswith(f"{path}: {what}")


def test_the_same_partition_in_two_directories_is_refused(three: Path, tmp_path: Path) -> None:
    shutil.copytree(three / "t-0", tmp_path / "copy" / "t-0")
    error = failure(lambda: Load(three, tmp_path / "copy").scan())
    assert str(three / "t-0") in str(error)
    assert error.topic_partition == "t-0"
