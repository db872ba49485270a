"""Transitions of the states of a record in flight."""

from __future__ import annotations

import pytest

from kafkalog_broker.share.in_flight_batch import NO_MEMBER, Run
from kafkalog_broker.share.record_state import NEXT_STATES, TERMINAL_STATES, RecordState

MAX_DELIVERIES = 5


def move(run: Run, state: RecordState) -> None:
    if state is RecordState.ACQUIRED:
        run.acquire("m", 1000)
    else:
        run.unlock(state)


@pytest.mark.parametrize("before", RecordState)
@pytest.mark.parametrize("after", RecordState)
def test_transition_that_is_not_in_the_table_is_refused(before: RecordState, after: RecordState) -> None:
    run = Run(0, 9, before, 1)
    if after in NEXT_STATES[before]:
        move(run, after)
        assert run.state is after
    else:
        with pytest.raises(ValueError, match=f"{after.name} cannot follow {before.name}"):
            move(run, after)
        assert run.state is before


def test_terminal_states_are_acknowledged_and_archived() -> None:
    assert {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED} == TERMINAL_STATES


@pytest.mark.parametrize(
    ("deliveries", "expected"), [(4, RecordState.AVAILABLE), (MAX_DELIVERIES, RecordState.ARCHIVED)]
)
def test_release_archives_records_at_the_delivery_limit(deliveries: int, expected: RecordState) -> None:
    run = Run(0, 9, RecordState.ACQUIRED, deliveries, "m", 1000)
    run.release(MAX_DELIVERIES)
    assert (run.state, run.member_id, run.lock_deadline) == (expected, NO_MEMBER, 0)
