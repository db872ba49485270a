"""Option `table`: what Spark is given, and which options mean something for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.errors import DataLoss, OptionError, UnknownPartition
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.tables.declarations import TABLES
from kafkalog_spark.source.description import describe
from tests.golden_data import KAFKA_4_3, data_dir


class TableLoad:
    """`spark.read.format("kafkalog").options(...).load(path)`, planned, as Spark does it."""

    def __init__(self, path: Path, schema: StructType | None = None, **options: object) -> None:
        texts = {name: str(value) for name, value in options.items()} | {"path": str(path)}
        self.source = cloudpickle.loads(cloudpickle.dumps(KafkaLogDataSource(CaseInsensitiveDict(texts))))
        self.schema = schema if schema is not None else self.source.schema()
        reader = self.source.reader(schema=self.schema)
        self.tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions() or [InputPartition(None)]]
        self._reader = cloudpickle.loads(cloudpickle.dumps(reader))

    def read(self) -> pa.Table:
        expected = to_arrow_schema(self.schema, timezone="UTC")
        batches = [batch for task in self.tasks for batch in self._reader.read(task)]
        for batch in batches:
            assert batch.schema.equals(expected), f"Spark refuses {batch.schema}, it expects {expected}"
        return pa.Table.from_batches(batches, schema=expected)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("crashed", [False, True])
def test_table_option_returns_the_rows_of_the_table(name: str, crashed: bool) -> None:
    root = data_dir(KAFKA_4_3, crashed=crashed)
    assert plain(TableLoad(root, table=name).read()) == plain(LogDirs.open(root).table(name).read_all())


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.topic is not None])
def test_history_option_returns_superseded_rows(name: str) -> None:
    found = plain(TableLoad(data_dir(), table=name, history="true").read())
    assert found == plain(LogDirs.open(data_dir()).table(name, history=True).read_all())


def test_large_segment_gets_its_own_task_and_small_ones_share(golden_copy: Callable[..., Path]) -> None:
    load = TableLoad(data_dir(), table="batches", maxPartitionBytes="64k")
    units = [unit for task in load.tasks for unit in task.value.units]
    assert len(units) == plain(TableLoad(data_dir(), table="segments").read()).__len__()
    large = [task.value.units for task in load.tasks if any(unit.size > 64 << 10 for unit in task.value.units)]
    assert large
    assert all(len(task) == 1 for task in large)
    assert len(load.tasks) < len(units)


def test_column_names_in_any_case_and_user_schemas_choose_columns() -> None:
    assert TableLoad(data_dir(), table="segments", columns="Size, FILE").read().column_names == ["size", "file"]
    schema = StructType([StructField("Codec", StringType()), StructField("size", LongType())])
    assert TableLoad(data_dir(), schema, table="batches", subscribe="java-lz4").read()["Codec"][0].as_py() == "lz4"
    nothing = TableLoad(data_dir(), StructType([]), table="partitions")
    assert sum(batch.num_rows for task in nothing.tasks for batch in nothing._reader.read(task)) == 27


def test_subscription_or_partition_directory_narrows_the_table() -> None:
    rows = plain(TableLoad(data_dir(), table="partitions", subscribePattern="java.*").read())
    assert {row["topic"] for row in rows} == {"java-gzip", "java-lz4", "java-snappy", "java-zstd"}
    (row,) = plain(TableLoad(data_dir() / "groups-1", table="partitions").read())
    assert (row["topic"], row["partition"]) == ("groups", 1)
    with pytest.raises(UnknownPartition, match="holds no topic nothing"):
        TableLoad(data_dir(), table="batches", subscribe="nothing")


def test_range_narrows_batches_and_segments_to_what_overlaps_it() -> None:
    asked = {"subscribe": "segments", "endingOffsets": '{"segments":{"0":1201,"1":0,"2":0}}'}
    start = {"startingOffsets": '{"segments":{"0":650,"1":0,"2":0}}'}
    segments = plain(TableLoad(data_dir(), table="segments", **asked, **start).read())
    assert [(row["partition"], row["segment"]) for row in segments] == [(0, 600), (0, 1200)]
    everything = plain(TableLoad(data_dir(), table="batches", subscribe="segments").read())
    batches = plain(TableLoad(data_dir(), table="batches", **asked, **start).read())
    assert batches == [
        row for row in everything if row["partition"] == 0 and row["last_offset"] >= 650 and row["base_offset"] < 1201
    ]
    assert batches


def test_timestamp_bounds_apply_to_tables_as_to_records() -> None:
    rows = plain(TableLoad(data_dir(), table="batches", subscribe="segments").read())
    half = sorted(int(row["max_timestamp"].timestamp() * 1000) for row in rows)[len(rows) // 2]
    after = plain(TableLoad(data_dir(), table="batches", subscribe="segments", startingTimestamp=half).read())
    assert 0 < len(after) < len(rows)
    assert {row["position"] for row in rows if int(row["max_timestamp"].timestamp() * 1000) >= half} <= {
        row["position"] for row in after
    }


def test_table_of_a_damaged_log_is_read(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, crashed=False)
    for path in root.rglob("*.log"):
        data = bytearray(path.read_bytes())
        if len(data) > 200:
            data[150] ^= 0xFF
            path.write_bytes(data)
    for name in TABLES:
        TableLoad(root, table=name).read()
    found = plain(TableLoad(root, table="batches", startingOffsets="earliest", endingTimestamp=1 << 60).read())
    assert not all(row["valid"] for row in found)


def test_files_deleted_before_the_read_are_data_loss_or_a_warning(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "segments-0")
    loads = [
        TableLoad(root, table="segments", columns="segment", failOnDataLoss=fail, subscribe="segments")
        for fail in ("true", "false")
    ]
    (root / "segments-0" / "00000000000000000000.log").unlink()
    with pytest.raises(DataLoss, match=r"segments-0 .*the segment has gone: .*failOnDataLoss=false reads what is left"):
        loads[0].read()
    assert [row["segment"] for row in plain(loads[1].read())][:2] == [600, 1200]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "batch"}, "option 'table' must be one of records, batches, segments"),
        ({"table": "batches", "columns": "ofset"}, "option 'columns': no column 'ofset'; the columns are topic, part"),
        (
            {"table": "batches", "includeHeaders": "true"},
            "option 'includeHeaders' applies to records, not to the table 'batches'",
        ),
        ({"table": "batches", "mode": "FAILFAST"}, "option 'mode' applies to records"),
        (
            {"table": "groups", "subscribe": "groups"},
            "the table 'groups' cannot be narrowed to topics; leave the topic out",
        ),
        (
            {"table": "partitions", "startingTimestamp": "5"},
            "option 'startingTimestamp' does not narrow the",
        ),
        ({"table": "batches", "history": "true"}, "the table 'batches' has no history; these have one: consumer_off"),
        ({"history": "true", "subscribe": "groups"}, "option 'history' applies to tables made of internal topics"),
    ],
)
def test_options_without_a_meaning_for_the_table_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TableLoad(data_dir(), **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "the table 'batches' has no column 'ofset'"),
        (StructField("size", IntegerType()), "the schema's column 'size' is int, expected bigint"),
        (StructField("size", LongType(), False), "the schema's column 'size' is NOT NULL"),
    ],
)
def test_schema_that_does_not_fit_the_table_is_refused(field: StructField, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TableLoad(data_dir(), StructType([field]), table="batches")
    assert str(caught.value).startswith(message)


def test_stream_and_describe_refuse_tables() -> None:
    load = TableLoad(data_dir(), table="batches")
    with pytest.raises(OptionError, match=r"a stream reads records, not the table 'batches'; use spark\.read"):
        load.source.streamReader(load.schema).initialOffset()
    with pytest.raises(OptionError, match=r"describe\(\) covers records, not the table 'batches'"):
        describe(data_dir(), table="batches")


def test_planning_a_table_opens_a_log_only_for_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkalog_spark.log.read.segment_file import SegmentFile

    opened: list[object] = []
    monkeypatch.setattr(SegmentFile, "open", lambda *args, **_: opened.append(args))
    for name in ("batches", "segments", "partitions", "findings", "consumer_offsets", "groups", "transactional_ids"):
        TableLoad(data_dir(), table=name)
    assert opened == []
