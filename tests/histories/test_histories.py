"""Histories of real clients over kills of the broker have no anomaly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.histories import run as run_module
from tests.histories.checker import Anomaly, count_producers, count_transactions, find_anomalies
from tests.histories.history import History, Kind
from tests.histories.run import Plan, run
from tests.histories.table import table

pytestmark = pytest.mark.end_to_end


def check(history: History) -> None:
    findings = find_anomalies(history)
    assert findings == [], table(history, findings)
    for kind in Kind:
        assert count_producers(history, kind).acknowledged > 0, "the load met no broker"
    assert count_transactions(history).committed > 0
    assert sum(len(session.seen) for session in history.sessions) > 0


@pytest.mark.timeout(600)
def test_histories_over_a_few_kills_have_no_anomaly(tmp_path: Path) -> None:
    check(run(Plan(seconds=15, kills=4, seed=1), tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("pattern", "size", "expected"),
    [
        ("histories-*/*.log", 3000, {Anomaly.LOST, Anomaly.BROKER_FAULT}),
        ("__consumer_offsets-*/*.log", 1500, {Anomaly.OFFSET_BACK}),
    ],
    ids=["records", "offsets"],
)
def test_history_over_a_kill_that_loses_the_end_of_logs_has_anomalies(
    pattern: str, size: int, expected: set[Anomaly], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checker that finds nothing must be able to find something."""

    def cut(number: int, log_dir: Path) -> None:
        last = {path.parent: path for path in sorted(log_dir.glob(pattern))}
        for path in last.values() if number == 2 else ():
            os.truncate(path, max(path.stat().st_size - size, 0))

    monkeypatch.setattr(run_module, "DEADLINE_S", 15)  # some clients never reach the end
    history = run(Plan(seconds=15, kills=3, seed=3), tmp_path, while_down=cut)
    assert expected <= {finding.anomaly for finding in find_anomalies(history)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_histories_of_ten_minutes_with_thirty_kills_have_no_anomaly(tmp_path: Path) -> None:
    check(run(Plan(seconds=600, kills=30, seed=2), tmp_path))
