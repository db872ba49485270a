"""The broker keeps its promises in states that a power cut may leave."""

from __future__ import annotations

import pytest

from tests.crash_states.search import search
from tests.crash_states.world import WORKLOADS, Mode

FEW, MANY = 10, 250
MODES = dict.fromkeys(WORKLOADS, Mode.STRICT) | {
    "producers": Mode.DEFAULT, "restarts": Mode.TOPIC, "idle": Mode.DEFAULT, "compaction": Mode.DEFAULT,
}  # fmt: skip
"""The mode in which `make test` looks at a few states of a workload."""


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_few_states_of_each_workload_keep_the_promises(workload: str) -> None:
    assert [str(found) for found in search(workload, MODES[workload], FEW, seed=1).found] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_many_states_of_each_workload_keep_the_promises(workload: str, mode: Mode) -> None:
    assert [str(found) for found in search(workload, mode, MANY, seed=2).found] == []
