"""Histories of real clients over kills of the broker have no anomaly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.checker import count_producers, count_transactions, find_anomalies
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
@pytest.mark.timeout(1800)
def test_histories_of_ten_minutes_with_thirty_kills_have_no_anomaly(tmp_path: Path) -> None:
    check(run(Plan(seconds=600, kills=30, seed=2), tmp_path))
