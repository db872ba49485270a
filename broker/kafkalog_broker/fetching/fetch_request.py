"""A Fetch request, independent of the version of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import ErrorCode

READ_COMMITTED = 1
"""Isolation level of Fetch and ListOffsets; 0 is read_uncommitted."""

TopicKey = str | UUID
"""A topic as the request identifies it: by name up to version 12, by ID from version 13 on."""
PartitionKey = tuple[TopicKey, int]


class FetchPartition(NamedTuple):
    """One partition of a request.

    Attributes:
        topic: Name or ID of the topic.
        partition: Partition index.
        fetch_offset: Offset of the first wanted record.
        max_bytes: Limit on the bytes of this partition (partition_max_bytes).
        current_leader_epoch: Leader epoch that the client knows, or -1.
        last_fetched_epoch: Leader epoch of the batch before `fetch_offset` in the client's copy of the log, or -1
            (KIP-595).
    """

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1


@dataclass(slots=True)
class MissingPartitions:
    """Partitions of one topic that cannot be read for the same reason.

    Attributes:
        error_code: The reason.
        indexes: Their indexes, as an ordered set. Only numbers, because a request may have 200,000.
    """

    error_code: ErrorCode
    indexes: dict[int, None] = field(default_factory=dict)


class SessionRequest(NamedTuple):
    """The fetch session of a request (KIP-227; Kafka: FetchMetadata).

    Attributes:
        session_id: ID of the session, `fetch_session.NO_SESSION` if there is none yet.
        epoch: Epoch of the request; `fetch_session.INITIAL_EPOCH` opens a session, `FINAL_EPOCH` closes it.
        forgotten: Partitions to remove from the session.
        names_topics_by_id: True if the partitions of the request have topic IDs.
    """

    session_id: int
    epoch: int
    forgotten: Sequence[PartitionKey]
    names_topics_by_id: bool


class LegacyFormat(NamedTuple):
    """Format for a client that cannot read v2 batches (Fetch 0 to 3).

    Attributes:
        magic: Newest message format of the client, 0 or 1.
        hard_limits: True if no message may exceed the byte limits, not even the first one: a larger message is cut off.
    """

    magic: int
    hard_limits: bool


class FetchRequest(NamedTuple):
    """A Fetch request.

    Attributes:
        partitions: Requested partitions, each once. As in Kafka (FetchRequest.fetchData), the last occurrence of a
            repeated partition is used, at the position of the first one.
        missing: Requested partitions that do not exist or may not be read, by topic. With a session they are among
            `partitions`, because they may be created later.
        session: Its session; None for clients without sessions.
        max_wait_s: How long the broker may wait for `min_bytes`, in seconds.
        min_bytes: Bytes of records for which a response does not wait.
        max_bytes: Limit on the bytes of records in the response.
        read_committed: True if records of open and aborted transactions are excluded.
        correlation_id: Number that changes from one request to the next.
        legacy: Format of the records, None if the client reads v2 batches.
    """

    partitions: Mapping[PartitionKey, FetchPartition]
    missing: Mapping[TopicKey, MissingPartitions]
    session: SessionRequest | None
    max_wait_s: float
    min_bytes: int
    max_bytes: int
    read_committed: bool
    correlation_id: int
    legacy: LegacyFormat | None = None
