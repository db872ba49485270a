"""Responses to ShareFetch, built without the classes of `api_messages` (see `fetch_messages`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID


class _UnchangedLeader(NamedTuple):
    """Kafka sends zeros if the partition's leader has not changed."""

    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(slots=True)
class ShareFetchPartition:
    """Response for one partition.

    Attributes:
        records: Whole batches in order, bytes-like or FileSlice.
        acquired_records: First offset, last offset and delivery count of each acquired range (`share.acquisition`).
    """

    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: Sequence[Any] = ()
    acquired_records: Sequence[tuple[int, int, int]] = ()
    current_leader: ClassVar[_UnchangedLeader] = _UnchangedLeader()

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.records))


class ShareFetchTopic(NamedTuple):
    """Responses for partitions of one topic."""

    topic_id: UUID | None
    partitions: Collection[ShareFetchPartition]


class ShareFetchResponse(NamedTuple):
    """A whole response. `node_endpoints` is empty because this node leads all partitions."""

    responses: Sequence[ShareFetchTopic] = ()
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout: int = 0
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()
