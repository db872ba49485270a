"""mode=PERMISSIVE from the options on: the columns, the rows, however a read is cut into tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kafkalog_spark.errors import CorruptBatch, OptionError
from kafkalog_spark.log.decode.record_schema import COLUMNS, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.option_parsing import parse_read_options
from tests.source.helpers.driver import Load, read
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append
from tests.source.test_drop_malformed import flip_a_record, offsets, zero_the_length

pytestmark = pytest.mark.local_only("it names local paths")


@pytest.fixture(params=[flip_a_record, zero_the_length], ids=lambda damage: damage.__name__)
def damaged(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """t-0 in two segments of ten batches of ten records; 20-29 and 150-159 are damaged."""
    for start in (0, 100):
        append(tmp_path, "t", 0, [f"{n:03}" for n in range(start, start + 100)],
               timestamps=[FIRST_TIMESTAMP + n for n in range(start, start + 100)], roll_first=True)  # fmt: skip
    for base_offset, batch in ((0, 2), (100, 5)):
        log = tmp_path / "t-0" / f"{base_offset:020d}.log"
        data = bytearray(log.read_bytes())
        request.param(data, batch * len(data) // 10, len(data) // 10)
        log.write_bytes(data)
    return tmp_path


def stretches(root: Path) -> list[dict[str, Any]]:
    found = []
    for base_offset, batch, first in ((0, 2, 20), (100, 5, 150)):
        path = root / "t-0" / f"{base_offset:020d}.log"
        size = path.stat().st_size // 10
        found.append({"_file": str(path), "_position": batch * size, "_length": size, "_first_offset": first,
                      "_next_offset": first + 10})  # fmt: skip
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": 7},
        {"maxPartitionBytes": 1},
        {"maxRecordsPerPartition": 25},
        {"includeHeaders": True},
        {"tail": 180},
    ],
    ids=str,
)
def test_permissive_returns_every_good_record_and_one_row_per_damaged_stretch(
    damaged: Path, options: dict[str, Any]
) -> None:
    rows = read(damaged, mode="PERMISSIVE", **options).to_pylist()
    good = [row for row in rows if row["_error"] is None]
    assert [row["offset"] for row in good] == offsets(0, 200)
    assert [row["value"] for row in good] == [f"{n:03}".encode() for n in offsets(0, 200)]
    bad = [row for row in rows if row["_error"] is not None]
    assert [{name: row[name] for name in DAMAGE_COLUMN_TYPES if name != "_error"} for row in bad] == stretches(damaged)
    for row in bad:
        assert (row["topic"], row["partition"], row["offset"], row["value"], row["timestamp"]) == (
            "t",
            0,
            None,
            None,
            None,
        )
    with pytest.raises(CorruptBatch) as caught:
        read(damaged, **options)
    assert (caught.value.path, caught.value.position) == (bad[0]["_file"], bad[0]["_position"])


def test_range_includes_the_damaged_stretches_that_overlap_it(damaged: Path) -> None:
    def bad(start: int, end: int) -> list[int]:
        bounds = {"startingOffsets": f'{{"t":{{"0":{start}}}}}', "endingOffsets": f'{{"t":{{"0":{end}}}}}'}
        rows = read(damaged, mode="PERMISSIVE", columns="offset,_first_offset", **bounds).to_pylist()
        return [row["_first_offset"] for row in rows if row["_first_offset"] is not None]

    assert bad(0, 20) == bad(30, 150) == []
    assert bad(0, 21) == bad(25, 26) == [20]
    assert bad(29, 155) == [20, 150]


def test_damage_columns_exist_only_in_permissive_mode(damaged: Path) -> None:
    assert Load(damaged, mode="PERMISSIVE").schema.names == [*COLUMNS, *DAMAGE_COLUMN_TYPES]
    assert Load(damaged, mode="DROPMALFORMED").schema.names == list(COLUMNS)
    assert Load(damaged, mode="PERMISSIVE", columns="value").schema.names == ["value", *DAMAGE_COLUMN_TYPES]
    assert Load(damaged, mode="PERMISSIVE", columns="_error,offset").schema.names == ["_error", "offset"]
    only = read(damaged, mode="PERMISSIVE", columns="_length").to_pylist()
    assert len(only) == 182
    assert sum(row["_length"] is not None for row in only) == 2
    schema = StructType([StructField("offset", LongType()), StructField("_error", StringType())])
    rows = Load(damaged, mode="PERMISSIVE", schema=schema).scan().read().to_pylist()
    assert sum(row["offset"] is None for row in rows) == 2
    with pytest.raises(OptionError, match="'_error', which requires mode=PERMISSIVE"):
        Load(damaged, schema=schema).scan()
    never_null = StructType([StructField("offset", LongType(), nullable=False)])
    with pytest.raises(OptionError, match="offset"):
        Load(damaged, mode="PERMISSIVE", schema=never_null).scan()
    values = StructType([StructField("offset", LongType())])
    with pytest.raises(OptionError, match="needs a column that distinguishes rows about damage from records"):
        Load(damaged, mode="PERMISSIVE", schema=values).scan()
    with pytest.raises(OptionError, match="no column '_error'"):
        Load(damaged, columns="_error")


def test_search_narrows_records_and_filters_stay_with_spark(damaged: Path) -> None:
    rows = read(damaged, mode="PERMISSIVE", **{"where.value.contains": "07"}).to_pylist()
    assert [row["offset"] for row in rows if row["_error"] is None] == [7, *range(70, 80), 107]
    assert [row["_first_offset"] for row in rows if row["_error"] is not None] == [20, 150]
    pushed = GreaterThanOrEqual(("offset",), 150)
    scan = Load(damaged, mode="PERMISSIVE", pushdown=True).scan(pushed)
    assert scan.residual == [pushed]


def test_permissive_mode_is_refused_by_a_stream() -> None:
    with pytest.raises(OptionError, match="mode=PERMISSIVE applies to batch queries only: a stream does not read"):
        parse_read_options({"path": "/logs", "subscribe": "t", "mode": "PERMISSIVE"}, streaming=True)
