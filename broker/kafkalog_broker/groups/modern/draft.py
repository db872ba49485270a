"""What one request does to groups: written as one batch, and only then done in memory."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_broker.coordinators.record_batches import Record
from kafkalog_broker.groups.modern.changes import Change, Kind, encode


class Draft:
    """Changes in their order, records of classic groups among them, and what is done once they are in the log."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.steps: list[Change | Record] = []
        self._after: list[Callable[[], None]] = []

    def change(self, kind: Kind, name: str, value: object) -> None:
        self.steps.append(Change(kind, self.group_id, name, value))

    def record(self, record: Record) -> None:
        """Of a classic group."""
        self.steps.append(record)

    def then(self, call: Callable[[], None]) -> None:
        self._after.append(call)

    def records(self) -> list[Record]:
        """Raises BrokerError for what does not fit into a record."""
        return [encode(step) if isinstance(step, Change) else step for step in self.steps]

    def changes(self) -> list[Change]:
        return [step for step in self.steps if isinstance(step, Change)]

    def done(self) -> None:
        """The changes are in the log and in memory."""
        for call in self._after:
            call()
