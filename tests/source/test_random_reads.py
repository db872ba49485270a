"""Random logs, ranges and predicates: what pruning leaves is what a full scan filtered in Python gives."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan, Not

from kafkalog_spark.errors import DataLoss, OffsetOutOfRange, OptionError
from kafkalog_spark.format.layout import Codec
from tests.searches import examples
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import (
    FIRST_TIMESTAMP,
    MadeBatch,
    write_batches,
)

OFFSET, TIMESTAMP = ("offset",), ("timestamp",)


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def offsets(table: pa.Table) -> list[int]:
    return table["offset"].to_pylist()  # type: ignore[no-any-return]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


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


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=logs(),
    queries=st.lists(st.tuples(bounds(), st.lists(PREDICATES, max_size=2)), min_size=2, max_size=6),
    number=st.integers(-1, 30),
    time=TIMES,
    indexes=st.sampled_from(INDEXES),
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 200, 1 << 20]),
)
def test_pruned_read_equals_a_full_scan_filtered_in_python(
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
