"""The batch reader as Spark drives it, without Spark: rows, schemas, actions on a log that changes, errors."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThanOrEqual, In, IsNotNull, LessThan, Not
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

from kafkalog_spark.errors import CorruptBatch, DataLoss, KafkalogError, NotALogDirectory, OffsetOutOfRange, OptionError
from kafkalog_spark.log.layout import Codec
from tests.golden_data import GoldenLog, golden_logs
from tests.log.rows import ALL_COLUMNS, plain_rows
from tests.source.driver import Load, Scan, read
from tests.source.made_logs import (
    FIRST_TIMESTAMP,
    MadeBatch,
    append,
    delete_first_segment,
    delete_partition,
    numbers,
    segment_offsets,
    write_batches,
)

OFFSET, TIMESTAMP, PARTITION = ("offset",), ("timestamp",), ("partition",)
every_log = pytest.mark.parametrize("golden_log", golden_logs(), ids=str)


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def offsets(table: pa.Table) -> list[int]:
    return table["offset"].to_pylist()  # type: ignore[no-any-return]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


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


# Random logs, ranges and predicates

CODECS = st.sampled_from(list(Codec))
TIMES = st.integers(0, 7).map(lambda n: FIRST_TIMESTAMP + n)  # few, so that bounds meet timestamps exactly
Row = tuple[int, int, str]  # offset, timestamp in ms, value


@st.composite
def logs(draw: st.DrawFn) -> list[MadeBatch]:
    """CreateTime out of order and LogAppendTime, gaps, all codecs, several segments."""
    batches = []
    for place in range(draw(st.integers(1, 9))):
        # later batches mostly have later timestamps, or no entry of a time index would ever help
        near = st.sampled_from([place // 2, place // 2, place // 2 + 1, max(place // 2 - 2, 0)])
        times = [FIRST_TIMESTAMP + ms for ms in draw(st.lists(near, min_size=1, max_size=7))]
        batches.append(
            MadeBatch(
                values=[str(draw(st.integers(0, 999))) for _ in times],
                timestamps=times,
                gap=draw(st.sampled_from([0, 0, 1, 5])),
                codec=draw(CODECS),
                log_append_time=draw(st.sampled_from([None, None, FIRST_TIMESTAMP + place // 2])),
                roll_first=draw(st.sampled_from([False, False, True])),
            )
        )
    return batches


def rows_written(batches: list[MadeBatch]) -> list[Row]:
    rows: list[Row] = []
    offset = 0
    for batch in batches:
        offset += batch.gap
        for value, timestamp in zip(batch.values, batch.timestamps, strict=True):
            shown = timestamp if batch.log_append_time is None else batch.log_append_time
            rows.append((offset, shown, str(value)))
            offset += 1
    return rows


INDEXES = ("as written", "deleted", "truncated", "padded", "garbage", "shifted")


def change_indexes(directory: Path, how: str, seed: int) -> None:
    """An index is a hint: whatever is in it, the rows must be the same."""
    chance = random.Random(seed)
    for path in sorted(directory.glob("*index")):
        data = path.read_bytes()
        match how:
            case "deleted":
                path.unlink()
            case "truncated":
                path.write_bytes(data[: len(data) // 2 + 3])
            case "padded":
                path.write_bytes(data + bytes(chance.choice([8, 12, 1000])))
            case "garbage":
                path.write_bytes(chance.randbytes(len(data) or 24))
            case "shifted":  # entries that look right and point to other batches
                size = 8 if path.suffix == ".index" else 12
                path.write_bytes(data[: size - 4] + data[2 * size - 4 :] if len(data) >= 2 * size else data)


OPS = (">=", "<", "=", "in", "not >=")
Predicate = tuple[str, str, int]  # column, operator, offset or timestamp in ms
PREDICATES = st.one_of(
    st.tuples(st.just("offset"), st.sampled_from(OPS), st.integers(-3, 30)),
    st.tuples(st.just("timestamp"), st.sampled_from(OPS), TIMES),
)


def as_filter(predicate: Predicate) -> spark.Filter:
    column, op, number = predicate
    value: Any = number if column == "offset" else at(number)
    also: Any = number + 3 if column == "offset" else at(number + 3)
    return {
        ">=": GreaterThanOrEqual((column,), value),
        "<": LessThan((column,), value),
        "=": EqualTo((column,), value),
        "in": In((column,), (value, also)),
        "not >=": Not(GreaterThanOrEqual((column,), value)),
    }[op]


def holds(predicate: Predicate, row: Row) -> bool:
    column, op, number = predicate
    actual = row[0] if column == "offset" else row[1]
    return {
        ">=": actual >= number,
        "<": actual < number,
        "=": actual == number,
        "in": actual in (number, number + 3),
        "not >=": actual < number,
    }[op]


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, object]:
    options: dict[str, object] = {"startingOffsetsByTimestampStrategy": "latest"}
    start = draw(st.sampled_from(["", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"]))
    if start == "startingOffsets":
        options[start] = json.dumps({"t": {"0": draw(st.integers(-2, 30).filter(lambda n: n != -1))}})
    elif start:
        time = draw(TIMES)
        options[start] = time if start == "startingTimestamp" else json.dumps({"t": {"0": time}})
    end = draw(st.sampled_from(["", "endingOffsets", "endingTimestamp"]))
    if end == "endingOffsets":
        options[end] = json.dumps({"t": {"0": draw(st.integers(-1, 30))}})
    elif end:
        options[end] = draw(TIMES)
    return options


def expected_range(options: dict[str, object], rows: list[Row]) -> tuple[int, int]:
    end_of_log = rows[-1][0] + 1

    def first_at(time: int) -> int:
        return next((offset for offset, timestamp, _ in rows if timestamp >= time), end_of_log)

    def number(name: str) -> int:
        return json.loads(str(options[name]))["t"]["0"]  # type: ignore[no-any-return]

    start, end = 0, end_of_log
    if "startingTimestamp" in options:
        start = first_at(int(str(options["startingTimestamp"])))
    elif "startingOffsetsByTimestamp" in options:
        start = first_at(number("startingOffsetsByTimestamp"))
    elif "startingOffsets" in options:
        start = max(number("startingOffsets"), 0)
    if "endingTimestamp" in options:
        end = first_at(int(str(options["endingTimestamp"])))
    elif "endingOffsets" in options and number("endingOffsets") >= 0:
        end = number("endingOffsets")
    return start, end


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=logs(),
    queries=st.lists(st.tuples(bounds(), st.lists(PREDICATES, max_size=2)), min_size=2, max_size=6),
    number=st.integers(-1, 30),
    time=TIMES,
    indexes=st.sampled_from(INDEXES),
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 200, 1 << 20]),
)
def test_pruned_reads_give_the_rows_of_a_full_scan_filtered_in_python(
    batches: list[MadeBatch],
    queries: list[tuple[dict[str, object], list[Predicate]]],
    number: int,
    time: int,
    indexes: str,
    seed: int,
    size: int,
) -> None:
    rows = rows_written(batches)
    # every operator alone, without bounds; then what was drawn
    alone: list[Predicate] = [
        (column, op, at_) for column, at_ in (("offset", number), ("timestamp", time)) for op in OPS
    ]
    with tempfile.TemporaryDirectory() as name:
        write_batches(Path(name), "t", 0, batches)
        change_indexes(Path(name) / "t-0", indexes, seed)
        for options, predicates in [*(({}, [predicate]) for predicate in alone), *queries]:
            check(partial(Load, name, pushdown=True, maxPartitionBytes=size, **options), options, predicates, rows)


def check(load: Callable[[], Load], options: dict[str, object], predicates: list[Predicate], rows: list[Row]) -> None:
    start, end = expected_range(options, rows)
    if start > end:
        with pytest.raises((OffsetOutOfRange, OptionError), match="is greater than"):
            load().scan()
        return
    if start < end and end > rows[-1][0] + 1:
        with pytest.raises(DataLoss, match="Could not read records"):
            load().scan()
        return
    scan = load().scan(*map(as_filter, predicates))
    assert scan.residual == []
    found = scan.read()
    expected = [row for row in rows if start <= row[0] < end and all(holds(p, row) for p in predicates)]
    times = [us // 1000 for us in found["timestamp"].cast(pa.int64()).to_pylist()]
    assert list(zip(offsets(found), times, values(found), strict=True)) == expected


# A second action on the same plan


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Topic t: "0" to "29" on partition 0 (three segments of ten), "100" to "109" on 1."""
    for at_ in (0, 10, 20):
        append(tmp_path, "t", 0, numbers(at_, at_ + 10), roll_first=True)
    append(tmp_path, "t", 1, numbers(100, 110))
    assert segment_offsets(tmp_path, "t", 0) == [0, 10, 20]
    return tmp_path


@pytest.mark.parametrize(
    "options", [{}, {"maxPartitionBytes": 1}, {"minPartitions": 9}, {"isolationLevel": "read_committed"}]
)
@pytest.mark.parametrize("roll", [False, True])
def test_a_second_action_sees_rows_that_came_meanwhile(three: Path, options: dict[str, object], roll: bool) -> None:
    scan = Load(three, **options).scan()
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 110)
    append(three, "t", 0, numbers(30, 40), roll_first=roll)
    append(three, "t", 1, numbers(110, 120), roll_first=roll)
    assert values(scan.read()) == numbers(0, 40) + numbers(100, 120)


def test_rows_that_come_to_an_empty_partition_are_seen(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, [])
    scan = Load(tmp_path).scan()
    assert scan.read().num_rows == 0
    append(tmp_path, "t", 0, ["a"])
    assert values(scan.read()) == ["a"]


def test_an_explicit_end_does_not_move(three: Path) -> None:
    scan = Load(three, endingOffsets='{"t":{"0":30,"1":-1}}').scan()
    append(three, "t", 0, ["30"])
    append(three, "t", 1, ["110"])
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 111)


def test_an_end_by_timestamp_does_not_move(three: Path) -> None:
    scan = Load(three, endingTimestamp=FIRST_TIMESTAMP + 10**6).scan()
    append(three, "t", 0, ["30"])
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 110)


@pytest.mark.parametrize("options", [{}, {"maxPartitionBytes": 1}, {"minPartitions": 9}])
def test_retention_between_two_actions_moves_earliest(three: Path, options: dict[str, object]) -> None:
    scan = Load(three, **options).scan()
    assert len(values(scan.read())) == 40
    delete_first_segment(three, "t", 0)
    assert values(scan.read()) == numbers(10, 30) + numbers(100, 110)
    delete_first_segment(three, "t", 0)
    assert values(scan.read()) == numbers(20, 30) + numbers(100, 110)


def test_retention_behind_an_explicit_start_is_data_loss(three: Path) -> None:
    options = {"startingOffsets": '{"t":{"0":5,"1":-2}}', "maxPartitionBytes": 1}
    scan = Load(three, **options).scan()
    forgiving = Load(three, failOnDataLoss=False, **options).scan()
    assert values(scan.read()) == numbers(5, 30) + numbers(100, 110)
    delete_first_segment(three, "t", 0)
    with pytest.raises(DataLoss, match=r"t-0.*\[5, 10\) for topic partition t-0: the log holds \[10, 30\)"):
        scan.read()
    assert values(forgiving.read()) == numbers(10, 30) + numbers(100, 110)


def test_loss_that_is_not_to_fail_is_logged(three: Path, caplog: pytest.LogCaptureFixture) -> None:
    scan = Load(three, failOnDataLoss=False, startingOffsets='{"t":{"0":5,"1":-2}}').scan()
    delete_first_segment(three, "t", 0)
    with caplog.at_level(logging.WARNING, "kafkalog"):
        scan.read()
    assert any("t-0" in record.getMessage() and "[5, 30)" in record.getMessage() for record in caplog.records)


def test_a_topic_deleted_after_planning_is_an_error(three: Path) -> None:
    scan = Load(three).scan()
    delete_partition(three, "t", 0)
    with pytest.raises(NotALogDirectory, match=r"t-0.*cannot be read: No such file"):
        scan.read()


def test_a_topic_made_again_after_planning_is_not_read_as_if_it_were_the_old_one(three: Path) -> None:
    scan = Load(three, startingOffsets='{"t":{"0":5,"1":-2}}').scan()
    delete_partition(three, "t", 0)
    append(three, "t", 0, numbers(0, 3))
    with pytest.raises(OffsetOutOfRange, match="start offset 5 is greater than the resolved end offset 3"):
        scan.read()


def test_a_cleaned_segment_is_read_though_the_planned_position_is_no_longer_a_batch(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 100))
    append(tmp_path, "t", 0, ["last"], roll_first=True)
    scan = Load(tmp_path, maxPartitionBytes=400).scan()
    assert any(split.hint and split.hint[1] for split in scan.splits)
    # what the cleaner leaves: offsets stay, batches are others, positions move
    other = tmp_path / "other"
    kept = [MadeBatch([str(i)], [FIRST_TIMESTAMP], gap=2) for i in range(2, 100, 3)]
    write_batches(other, "t", 0, kept)
    for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"):
        os.replace(other / "t-0" / name, tmp_path / "t-0" / name)
    assert values(scan.read()) == [*(str(i) for i in range(2, 100, 3)), "last"]


def test_a_planned_position_where_a_later_batch_lies_now_skips_nothing(tmp_path: Path) -> None:
    batches = [
        MadeBatch([f"{i:03}" for i in range(at_, at_ + 10)], [FIRST_TIMESTAMP] * 10) for at_ in range(0, 100, 10)
    ]
    write_batches(tmp_path, "t", 0, batches)
    scan = Load(tmp_path, maxPartitionBytes=1, minPartitions=1).scan()
    assert len(scan.splits) > 5
    # all batches are of one size: without the first two, each of the others lies where an earlier one was
    other = tmp_path / "other"
    write_batches(other, "t", 0, [replace(batches[2], gap=20), *batches[3:]])
    for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"):
        os.replace(other / "t-0" / name, tmp_path / "t-0" / name)
    assert offsets(scan.read()) == [*range(20, 100)]


def test_a_pushed_filter_beyond_the_end_is_empty_until_rows_come(three: Path) -> None:
    for options in ({}, {"startingOffsets": '{"t":{"0":5,"1":-2}}'}):
        scan = Load(three, pushdown=True, **options).scan(GreaterThanOrEqual(OFFSET, 33), EqualTo(PARTITION, 0))
        assert scan.read().num_rows == 0
    append(three, "t", 0, numbers(30, 40))
    assert values(scan.read()) == numbers(33, 40)


def test_a_pushed_end_beyond_the_log_holds_for_rows_that_come(three: Path) -> None:
    scan = Load(three, pushdown=True).scan(LessThan(OFFSET, 33), EqualTo(PARTITION, 0))
    assert values(scan.read()) == numbers(0, 30)
    append(three, "t", 0, numbers(30, 40))
    assert values(scan.read()) == numbers(0, 33)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_transaction_opened_after_planning_is_not_read_committed(three: Path, isolation: str) -> None:
    scan = Load(three, isolationLevel=isolation, assign='{"t":[0]}').scan()
    opened = MadeBatch(["open"], [FIRST_TIMESTAMP], producer_id=7)
    write_batches(three, "t", 0, [MadeBatch(["30"], [FIRST_TIMESTAMP]), opened, MadeBatch(["32"], [FIRST_TIMESTAMP])])
    behind = ["open", "32"] if isolation == "read_uncommitted" else []
    assert values(scan.read()) == [*numbers(0, 31), *behind]


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
