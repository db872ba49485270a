"""Bank transfers under kill -9: readers see committed transfers whole and no others. With Spark: tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.clients.helpers.bank_crashes import audit, opened, rounds_of_crashes

pytestmark = pytest.mark.end_to_end


def test_transactions_over_a_few_crashes_keep_the_sum_of_all_accounts(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        audit(broker, rounds_of_crashes(broker, rounds=3, seed=1))
