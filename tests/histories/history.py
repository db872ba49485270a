"""History of a run: what clients tried, what they were told and read, and what the log holds at the end. Plain data."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Kind(enum.Enum):
    """Guarantee of a producer. PLAIN: acks=all without idempotence, so retries may write a record twice."""

    PLAIN = "plain"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"


class Outcome(enum.Enum):
    """UNKNOWN: there was no response, as after a kill or a time-out of the client; the record may be in the log."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"  # the record was never sent
    UNKNOWN = "unknown"


class Ending(enum.Enum):
    """End of a transaction. ABORTED: abort was acknowledged, or commit was never requested. UNKNOWN: commit was
    requested, and its response is missing."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class RecordId(NamedTuple):
    """Identity of a record, written as its value. number: unique within the producer, in the order of sending."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}#{self.number}"


class GroupPartition(NamedTuple):
    group: str
    partition: int

    def __str__(self) -> str:
        return f"group {self.group}, partition {self.partition}"


class Send(NamedTuple):
    """Intent, noted before the record is given to the client. transaction: its number, None outside of one."""

    number: int
    partition: int
    transaction: int | None = None


class Result(NamedTuple):
    """Response to a send. offset: None if unknown. after: number of sends noted before the response arrived."""

    outcome: Outcome
    offset: int | None = None
    after: int = 0


@dataclass(slots=True)
class Transaction:
    """offsets: what the transaction commits for the partitions that it consumed."""

    ending: Ending = Ending.ABORTED
    offsets: dict[GroupPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class ProducerLedger:
    """Everything one producer tried. results: by number of the send; a send without one is UNKNOWN. transactions: by
    number, in their order."""

    name: str
    kind: Kind
    sends: list[Send] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    transactions: dict[int, Transaction] = field(default_factory=dict)

    def result(self, number: int) -> Result:
        return self.results.get(number, Result(Outcome.UNKNOWN, None, len(self.sends)))


class PositionRead(NamedTuple):
    """Committed offset that a transactional producer found. after: the last transaction that it, or an earlier producer
    of the same transactional ID, had begun; None before the first one. offset: None without a committed offset."""

    key: GroupPartition
    producer: str
    after: tuple[str, int] | None
    offset: int | None


class OffsetRead(NamedTuple):
    """Committed offset of a group outside of transactions, as read. at_least: the largest offset whose commit had been
    acknowledged before the read began; at_most: the largest one whose commit had been requested before it ended."""

    key: GroupPartition
    offset: int
    at_least: int
    at_most: int


class Seen(NamedTuple):
    """A record that a consumer returned."""

    offset: int
    record: RecordId


@dataclass(slots=True)
class Session:
    """Records of one partition that a consumer returned from a start position on, in its order.

    at_least, at_most: bounds of the start position. They differ for a member of a group, which resumes at a committed
    offset.
    """

    consumer: str
    partition: int
    read_committed: bool
    at_least: int = 0
    at_most: int = 0
    seen: list[Seen] = field(default_factory=list)


class Entry(NamedTuple):
    """A record in the final log. record: None if its value is no record ID. is_committed: a read_committed consumer
    returns it."""

    offset: int
    record: RecordId | None
    is_committed: bool


class Error(NamedTuple):
    """An error that a client returned. is_broker: the broker responded with it; else the client gave up by itself, as
    at its own deadline or without a connection."""

    client: str
    name: str
    is_broker: bool


@dataclass(slots=True)
class History:
    """Everything about one run.

    lineage: names of the producers of each transactional ID, in the order in which they began. log: the final log by
    partition, in the order of offsets. errors: those that clients returned. The other lists hold sentences, one for
    each case. open_transactions: partitions whose last stable offset does not reach the end although every transaction
    must have ended. stalled: consumers that do not reach the end of the log. disagreements: differences between what
    the broker returns and what its files hold, and errors of kafkalog-check. broker_errors: lines of the broker's log.
    """

    producers: list[ProducerLedger] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    offset_reads: list[OffsetRead] = field(default_factory=list)
    position_reads: list[PositionRead] = field(default_factory=list)
    lineage: dict[str, list[str]] = field(default_factory=dict)
    log: dict[int, list[Entry]] = field(default_factory=dict)
    open_transactions: list[str] = field(default_factory=list)
    stalled: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    broker_errors: list[str] = field(default_factory=list)
    errors: Counter[Error] = field(default_factory=Counter)

    def producers_of(self, *kinds: Kind) -> Iterable[ProducerLedger]:
        return (ledger for ledger in self.producers if ledger.kind in kinds)
