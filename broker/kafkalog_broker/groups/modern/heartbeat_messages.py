"""What members of consumer groups send and are answered, and what administrators are shown: plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.modern.reconciliation import Reported

NOT_SAID = -1
"""A rebalance timeout that has not changed since the last heartbeat."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat. None: as in the last one. may_describe: whether the sender may see a topic, which its
    regular expression might match. rebalance_timeout_ms: NOT_SAID for none."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Reported | None = None
    client_id: str = ""
    client_host: str = ""
    needs_member_id: bool = True
    """v1: the client makes its id (KIP-1082)."""
    may_describe: Callable[[str], bool] | None = None

    @property
    def says_nothing_new(self) -> bool:
        """Nothing but that the member is there, and perhaps which partitions it has."""
        said = (self.instance_id, self.rack_id, self.topics, self.regex, self.assignor)
        return self.rebalance_timeout_ms == NOT_SAID and said == (None,) * len(said)

    @property
    def is_full(self) -> bool:
        """Everything is said, as when joining or after an error: it is answered with the assignment."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NOT_SAID and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """interval_ms: until the next heartbeat. assignment: None where it has not changed."""

    member_id: str
    member_epoch: int
    interval_ms: int = 0
    assignment: Mapping[UUID, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    topic_id: UUID
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """One member. is_classic: it speaks JoinGroup."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: tuple[DescribedTopic, ...]
    target: tuple[DescribedTopic, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    error: ErrorCode = ErrorCode.none
    error_message: str | None = None
