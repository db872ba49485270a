"""Offsets behind latest, in the names of the Kafka source's metrics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_spark.source.lag import Lag, LagListener, lag_of, offsets_behind_latest
from tests.source.helpers.made_logs import append, numbers


def progress(*sources: tuple[str | None, str | None]) -> Any:
    """Return the fields of Spark's listener event that the product uses: a dict since Spark 4.0."""
    return {
        "name": None,
        "id": "query-1",
        "sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources],
    }


def test_lag_metrics_have_the_kafka_sources_names() -> None:
    lag = lag_of({("t", 0): 10, ("t", 1): 4}, {("t", 0): 15, ("t", 1): 4, ("t", 2): 4})
    assert lag.by_partition == {("t", 0): 5, ("t", 1): 0, ("t", 2): 4}
    assert lag.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "5",
        "avgOffsetsBehindLatest": "3.0",
    }
    assert lag.total == 9
    assert str(lag) == "9 offsets behind latest in 3 partitions: t-0 5, t-2 4"
    assert lag_of({}, {}).metrics == {}
    assert str(lag_of({("t", 0): 9}, {("t", 0): 7})) == "0 offsets behind latest in 1 partitions"


def test_lag_of_many_partitions_lists_the_largest_lags() -> None:
    lag = Lag({("t", partition): partition for partition in range(8)})
    assert str(lag).endswith(": t-7 7, t-6 6, t-5 5, t-4 4, t-3 3, 2 more")


def test_lag_ignores_other_kinds_of_sources_in_a_progress() -> None:
    ours = ('{"t": {"0": 3}}', '{"t": {"0": 5}}')
    files = ('{"logOffset": 3}', None)
    lags = offsets_behind_latest(progress(ours, files, (None, None), ('{"u":{"0":1}}', '{"u":{"0":1}}')))
    assert [lag.by_partition for lag in lags] == [{("t", 0): 2}, {("u", 0): 0}]
    as_json = {"sources": [{"endOffset": {"t": {"0": 3}}, "latestOffset": {"t": {"0": 5}}}]}
    assert [lag.total for lag in offsets_behind_latest(as_json)] == [2]
    assert offsets_behind_latest(None) == []


def test_lag_is_measured_against_the_current_logs(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 10))
    append(tmp_path, "u", 0, numbers(0, 10))
    seen = progress(('{"t": {"0": 3}}', '{"t": {"0": 5}}'))
    assert [lag.total for lag in offsets_behind_latest(seen, str(tmp_path), subscribe="t")] == [7]


def test_lag_listener_reports_every_progress(capsys: pytest.CaptureFixture[str]) -> None:
    event = SimpleNamespace(progress=progress(('{"t": {"0": 3}}', '{"t": {"0": 5}}')))
    LagListener().onQueryProgress(event)
    assert capsys.readouterr().out == "query-1: 2 offsets behind latest in 1 partitions: t-0 2\n"
    told: list[tuple[str, int]] = []
    event.progress["name"] = "orders"
    LagListener(lambda query, lag: told.append((query, lag.total))).onQueryProgress(event)
    assert told == [("orders", 2)]
