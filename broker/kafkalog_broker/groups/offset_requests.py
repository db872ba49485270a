"""Requests to commit offsets as plain values, the same for every version of OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.groups.classic.classic_requests import NO_GENERATION, NO_MEMBER

NO_OFFSET = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = None
    topic_id: UUID | None = None
    commit_timestamp_ms: int = -1  # set by v1 only; -1 for the time of the request


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    partitions: tuple[CommittedPartition, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int = -1  # set by v2 to v4 only; -1 for offsets.retention.minutes
    supports_group_id_not_found: bool = True
    """True since v9. Earlier versions, and transactions, get ILLEGAL_GENERATION for an unknown group. Members of
    consumer groups cannot commit with earlier versions."""
    producer: ProducerIdAndEpoch | None = None
    """Producer of the transaction of a TxnOffsetCommit. The offsets take effect when the transaction is committed."""
