"""Responses to Fetch, built without the classes of `api_messages`.

`encode_response` writes any object with the attributes of Kafka's struct. These plain tuples and dataclasses take less
time to make, which counts because a response may have thousands of partitions. Attributes are named after the fields.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from kafkalog_spark.format.transaction_index import AbortedTransaction

Topic = Hashable
"""Name of a topic, or its ID from version 13 on."""


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record."""

    epoch: int
    end_offset: int


@dataclass(slots=True)
class PartitionFetchResponse:
    """Response for one partition. -1 stands for an unknown offset.

    Attributes:
        records: Whole batches in order, bytes-like or FileSlice, which are sent without a copy. None is written as
            null, () as empty, which Kafka does on errors.
        aborted_transactions: None for read_uncommitted.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Any] | None = ()
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    diverging_epoch: EpochEnd | None = None
    preferred_read_replica: ClassVar[int] = -1
    current_leader: ClassVar[None] = None
    snapshot_id: ClassVar[None] = None


class RefusedPartitions:
    """Partitions of a topic with the same error. Only their indexes are stored; iterating makes the responses."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code
        self.indexes: dict[int, None] = {}  # an ordered set

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[PartitionFetchResponse]:
        # As in Kafka, aborted transactions are an empty array, not null, if no log was read.
        return (PartitionFetchResponse(index, self.error_code, aborted_transactions=()) for index in self.indexes)


class TopicFetchResponse(NamedTuple):
    """Responses for partitions of one topic."""

    topic: Topic
    partitions: Sequence[PartitionFetchResponse] | RefusedPartitions

    @property
    def topic_id(self) -> Topic:
        return self.topic


class FetchResponse(NamedTuple):
    """A whole response. `node_endpoints` is empty because this node leads all partitions."""

    responses: Sequence[TopicFetchResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()
