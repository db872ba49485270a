"""What clients sent, and what was acknowledged to them at which point of a trace.

A point is an index of the trace's events. At a crash at point k, a request with `sent_at` < k may have had an effect,
and one with `acked_at` < k was acknowledged.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

NEVER = sys.maxsize
"""Point of an acknowledgement that did not come."""

Partition = tuple[str, int]


@dataclass
class SentBatch:
    """Records of one Produce request to one partition. keys: None for records without keys."""

    partition: Partition
    values: list[bytes | None]
    sent_at: int
    acked_at: int = NEVER
    base_offset: int = -1
    keys: list[bytes] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transaction: SentTransaction | None = None

    @property
    def until(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(eq=False)
class SentTransaction:
    """A transaction of a producer. ended_at, acked_at: points of EndTxn's request and response. fenced_at: point of a
    request that aborts it, such as InitProducerId of its next producer."""

    transactional_id: str
    batches: list[SentBatch] = field(default_factory=list)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    commits: bool | None = None
    ended_at: int = NEVER
    acked_at: int = NEVER
    fenced_at: int = NEVER

    def may_be_visible(self, point: int) -> bool:
        """Whether records may be visible to read_committed consumers after a crash at `point`."""
        return bool(self.commits) and self.ended_at < point

    def must_be_visible(self, point: int) -> bool:
        """Whether its commit was acknowledged before `point`."""
        return bool(self.commits) and self.acked_at < point


@dataclass(frozen=True)
class Change:
    """A request that sets a register. transaction: the change counts when that commits."""

    value: Any
    sent_at: int
    acked_at: int
    transaction: SentTransaction | None = None


class Register:
    """A value that requests replace, such as a configuration, a committed offset, or whether a topic exists."""

    def __init__(self, initial: Any = None) -> None:
        self.initial = initial
        self.changes: list[Change] = []

    def possible(self, point: int, *, durable: bool) -> list[Any]:
        """Return the values that are allowed after a crash at `point`.

        durable: acknowledged values are not lost. Otherwise every value that was ever requested is allowed.
        """
        allowed = [self.initial]
        for change in self.changes:
            if change.sent_at >= point:
                break
            done = change.acked_at
            if change.transaction is not None:
                if not change.transaction.may_be_visible(point):
                    continue
                done = change.transaction.acked_at
            if durable and done < point:
                allowed.clear()
            allowed.append(change.value)
        return allowed


@dataclass(frozen=True)
class Trim:
    """A request or a round of housekeeping that may move the log start offset of a partition up to `offset`."""

    partition: Partition
    offset: int
    sent_at: int


class Ledger:
    """Everything that the checks of a workload's states compare with. Appended to by several threads."""

    def __init__(self) -> None:
        self.batches: list[SentBatch] = []
        self.transactions: list[SentTransaction] = []
        self.registers: defaultdict[Hashable, Register] = defaultdict(Register)
        self.trims: list[Trim] = []
        self.seen: list[tuple[Partition, int, int]] = []
        """(partition, end offset, point) of responses to Fetch: what was shown to a consumer."""
        self.producer_ids: list[tuple[int, int]] = []
        """(producer id, point of the response that gave it)."""

    def set(self, key: Hashable, value: Any, sent_at: int, acked_at: int, **more: Any) -> None:
        """Record an acknowledged change of a register."""
        self.registers[key].changes.append(Change(value, sent_at, acked_at, **more))

    def is_deleted(self, topic: str, point: int) -> bool:
        """Whether the deletion of a topic was requested before `point`, also if a new one has its name."""
        register = self.registers.get(("topic", topic))
        return register is not None and any(one.value is None and one.sent_at < point for one in register.changes)

    def of_partition(self, partition: Partition) -> Iterator[SentBatch]:
        """Acknowledged batches of the whole run, in the order of their offsets."""
        found = [one for one in self.batches if one.partition == partition and one.base_offset >= 0]
        return iter(sorted(found, key=lambda one: one.base_offset))

    def partitions(self) -> list[Partition]:
        return sorted({one.partition for one in self.batches})

    def trimmed_to(self, partition: Partition, point: int) -> int:
        """Return the highest log start offset that is allowed after a crash at `point`."""
        return max((one.offset for one in self.trims if one.partition == partition and one.sent_at < point), default=0)


def expected_values(batches: Iterable[SentBatch]) -> dict[int, tuple[bytes | None, SentBatch]]:
    """Return value and batch by offset."""
    return {batch.base_offset + index: (value, batch) for batch in batches for index, value in enumerate(batch.values)}
