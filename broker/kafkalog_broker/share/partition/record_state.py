"""The states of a record that is in flight, and what acknowledging it makes of it (RecordState, AcknowledgeType)."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class RecordState(enum.IntEnum):
    """As records of __share_group_state and state batches number them. Acquired records are never written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""Nobody gets such a record again."""


class AcknowledgeType(enum.IntEnum):
    """GAP: there is no record at the offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


AFTER: Mapping[int, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""What an acquired record becomes. RENEW leaves it acquired, for longer."""


def released_state(delivery_count: int, limit: int) -> RecordState:
    """What a record becomes that nobody holds any more."""
    return RecordState.ARCHIVED if delivery_count >= limit else RecordState.AVAILABLE
