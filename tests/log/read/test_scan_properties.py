"""Random logs, random requests: a scan equals the plain decoder over all bytes, filtered in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog_spark.log.decode import decompressed_batches, row_buffers, run_decoder, scan_buffers
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read import segment_scan
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_lookup import PositionHint
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.log.helpers.random_logs import (
    NEWEST,
    SPAN,
    LogPlan,
    RandomLog,
    aborted_of,
    build,
    committed_batches,
    first_unstable_offset,
    log_plans,
    rows_of,
)
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.searches import examples

_QUICK = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
_LONG = settings(_QUICK, max_examples=4000)

USUAL: dict[str, int] = {}
TINY = {
    "BATCH_ROWS": 5,
    "VALUE_BYTES": 64,
    "KEY_BYTES": 16,
    "HEADERS": 2,
    "HEADER_BYTES": 24,
    "WINDOW": 300,
    "DECOMPRESSED": 100,
    "_TABLE_ROWS": 3,
}
SMALL = {
    "BATCH_ROWS": 33,
    "VALUE_BYTES": 1000,
    "KEY_BYTES": 100,
    "HEADERS": 9,
    "HEADER_BYTES": 200,
    "WINDOW": 4000,
    "DECOMPRESSED": 5000,
}


@contextmanager
def capacities(sizes: dict[str, int]) -> Iterator[None]:
    """Buffers of other sizes, so that they get full in the middle of everything."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            named = [
                m
                for m in (segment_scan, scan_buffers, decompressed_batches, run_decoder, row_buffers)
                if hasattr(m, name)
            ]
            assert named
            for module in named:
                patch.setattr(module, name, size)
        yield


@contextmanager
def written(plan: LogPlan) -> Iterator[RandomLog]:
    with tempfile.TemporaryDirectory() as directory:
        yield build(plan, Path(directory))


@st.composite
def requests(draw: st.DrawFn, log: RandomLog, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What to ask for: offsets and timestamps near those of the log."""
    first = log.segments[0][0]
    offsets = st.integers(first, log.log_end_offset)
    timestamps = st.sampled_from(sorted({row["timestamp"] for row in rows} | {-1, NEWEST - SPAN // 2}))
    near = st.tuples(timestamps, st.integers(-1, 1)).map(sum)
    return {
        "start": max(draw(st.one_of(st.just(first), offsets)), log.log_start_offset),
        "end": draw(st.one_of(st.just(log.log_end_offset), offsets)),
        "timestamp_from_ms": draw(st.one_of(st.just(-(2**63)), near)),
        "timestamp_until_ms": draw(st.one_of(st.just(2**63 - 1), near)),
        "offset_in": tuple(draw(st.one_of(st.just([]), st.lists(offsets, min_size=1, max_size=5)))),
        "timestamp_in_ms": tuple(draw(st.one_of(st.just([]), st.lists(timestamps, min_size=1, max_size=5)))),
        "columns": tuple(draw(st.one_of(st.just(ALL_COLUMNS), st.lists(st.sampled_from(ALL_COLUMNS), unique=True)))),
        "read_committed": draw(st.booleans()),
        "first_batch_rows": draw(st.sampled_from((1, 2, 1000))),
        "hint": draw(st.sampled_from(("none", "right", "wrong"))),
    }


def hint_for(log: RandomLog, kind: str, start: int, draw: Any) -> PositionHint | None:
    if kind == "none":
        return None
    if kind == "wrong":
        return PositionHint(draw(st.sampled_from([base for base, _ in log.segments])), draw(st.integers(-1, 3000)))
    for base, batches in log.segments:
        for batch in batches:
            if batch.last_offset >= start:
                return PositionHint(base, batch.position)
    return None


def wanted(row: dict[str, Any], asked: dict[str, Any]) -> bool:
    return (
        asked["start"] <= row["offset"] < asked["end"]
        and asked["timestamp_from_ms"] <= row["timestamp"] < asked["timestamp_until_ms"]
        and (not asked["offset_in"] or row["offset"] in asked["offset_in"])
        and (not asked["timestamp_in_ms"] or row["timestamp"] in asked["timestamp_in_ms"])
    )


def check_a_log(plan: LogPlan, sizes: dict[str, int], data: st.DataObject) -> None:
    with written(plan) as log, capacities(sizes):
        opened = log.open()
        assert opened.log_start_offset == log.log_start_offset
        assert opened.log_end_offset == log.log_end_offset
        batches = log.batches
        rows = list(rows_of(batches))
        committed = list(rows_of(committed_batches(batches)))
        stable = last_stable_offset(opened)
        space = scan_buffers.ScanBuffers()
        held = []
        for _ in range(3):
            asked = data.draw(requests(log, rows))
            if asked["read_committed"]:
                asked["end"] = min(asked["end"], stable)
            request = ScanRequest(**{name: asked[name] for name in ScanRequest.__dataclass_fields__ if name in asked})
            hint = hint_for(log, asked["hint"], asked["start"], data.draw)
            # Kept until the end: a buffer that is used again while somebody holds it would show.
            scan = partial(scan_partition, opened, asked["start"], asked["end"], request, position_hint=hint)
            got = list(scan())
            held.append((got, list(scan(buffers=space))))  # the buffers of the scans before
            expected = [row for row in (committed if asked["read_committed"] else rows) if wanted(row, asked)]
            assert all(batch.schema.names == list(asked["columns"]) for batch in got)
            if not asked["columns"]:
                assert sum(batch.num_rows for batch in got) == len(expected)
            else:
                assert plain_rows(got) == [{name: row[name] for name in asked["columns"]} for row in expected]
        for alone, after_others in held:
            assert sum(batch.num_rows for batch in after_others) == sum(batch.num_rows for batch in alone)
            if alone and alone[0].num_columns:
                assert plain_rows(after_others) == plain_rows(alone)


@_QUICK
@given(log_plans(), st.data())
def test_scan_equals_the_plain_decoder_filtered_in_python(plan: LogPlan, data: st.DataObject) -> None:
    check_a_log(plan, USUAL, data)


@_QUICK
@given(log_plans(12, index_states=("lying", "stale")), st.data())
def test_wrong_index_loses_and_adds_no_row(plan: LogPlan, data: st.DataObject) -> None:
    check_a_log(replace(plan, index_interval=0, start_at=0.0), USUAL, data)


@_QUICK
@given(log_plans(), st.sampled_from((TINY, SMALL)), st.data())
def test_scan_does_not_depend_on_window_and_buffer_sizes(
    plan: LogPlan, sizes: dict[str, int], data: st.DataObject
) -> None:
    check_a_log(plan, sizes, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@_LONG
@given(log_plans(max_batches=20), st.sampled_from((USUAL, TINY, SMALL)), st.data())
def test_scan_of_many_random_logs_equals_the_plain_decoder(
    plan: LogPlan, sizes: dict[str, int], data: st.DataObject
) -> None:
    check_a_log(plan, sizes, data)


@_QUICK
@given(log_plans())
def test_last_stable_offset_is_the_first_offset_of_the_oldest_open_transaction(plan: LogPlan) -> None:
    with written(plan) as log:
        unstable = first_unstable_offset(log.batches)
        expected = log.log_end_offset if unstable is None else max(unstable, log.log_start_offset)
        answers = {expected}
        # Without a snapshot nobody knows what began, and ended without a marker, before the log start offset.
        seen = first_unstable_offset([batch for batch in log.batches if batch.last_offset >= log.log_start_offset])
        answers.add(log.log_end_offset if seen is None else max(seen, log.log_start_offset))
        assert last_stable_offset(log.open()) in answers


@_QUICK
@given(log_plans())
def test_aborted_transactions_are_those_with_an_abort_marker(plan: LogPlan) -> None:
    with written(plan) as log:
        found = aborted_transactions(log.open(), log.segments[0][0], log.log_end_offset)
        assert found.aborted == aborted_of(log.batches)


@_QUICK
@given(log_plans(), st.data())
def test_offset_for_timestamp_is_the_first_offset_at_or_after_it(plan: LogPlan, data: st.DataObject) -> None:
    with written(plan) as log:
        every = rows_of(log.batches, control=True)
        rows = [row for row in every if row["offset"] >= log.log_start_offset]  # type: ignore[operator]
        probes = data.draw(
            st.lists(st.sampled_from(sorted({0, NEWEST + 1, *(row["timestamp"] for row in rows)})), max_size=5)  # type: ignore[type-var]
        )
        opened = log.open()
        for probe in probes:
            expected = next((row["offset"] for row in rows if row["timestamp"] >= probe), None)  # type: ignore[operator]
            assert offset_for_timestamp(opened, probe) == expected
