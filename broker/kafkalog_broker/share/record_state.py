"""States of a record in flight, and the transitions between them (Kafka's RecordState)."""

from __future__ import annotations

import enum


class RecordState(enum.IntEnum):
    """State of a record in flight, as numbered in __share_group_state. ACQUIRED is never persisted: after a restart
    such a record is available again."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


NEXT_STATES: dict[RecordState, frozenset[RecordState]] = {
    # Archived without a delivery: the record is before the log start, or was compacted away.
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}
"""By state, the states that may follow."""

TERMINAL_STATES = frozenset(state for state, following in NEXT_STATES.items() if not following)
"""Records in these states are not delivered again."""
