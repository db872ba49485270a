"""The bank under kill -9: committed transfers are there whole, others not at all. With Spark: tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.clients.helpers.bank_crashes import audit, opened, rounds_of_crashes

pytestmark = pytest.mark.end_to_end


def test_the_sum_over_all_accounts_stays_over_a_few_crashes(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        audit(broker, rounds_of_crashes(broker, rounds=3, seed=1))
