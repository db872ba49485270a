"""Partitions in the requests and responses of OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_requests import CommittedPartition
from kafkalog_broker.protocol.request import Request


class RequestedCommit(NamedTuple):
    """The partitions of a commit request.

    Attributes:
        partitions: Partitions to commit: they exist, and the sender may read them.
        errors: The error of each partition of the request, in order; `none` for those in `partitions`.
    """

    partitions: tuple[CommittedPartition, ...]
    errors: Sequence[ErrorCode]


def requested_commit(request: Request, broker: Broker, *, by_id: bool) -> RequestedCommit:
    """Look up and authorize the partitions of a request. `by_id`: the request names topics by ID."""
    partitions: list[CommittedPartition] = []
    errors: list[ErrorCode] = []
    unknown_topic = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    for topic_struct in request.entity.topics:
        if by_id:
            topic = None if topic_struct.topic_id is None else broker.topics.by_id(topic_struct.topic_id)
        else:
            topic = broker.topics.get(topic_struct.name)
        denial = ErrorCode.none
        if request.access is not None and not (by_id and topic is None):
            denial = request.authorization_error(topic_struct.name if topic is None else topic.name)
        for partition in topic_struct.partitions:
            index = partition.partition_index
            if denial:
                errors.append(denial)
            elif topic is None:
                errors.append(unknown_topic)
            elif not 0 <= index < topic.partitions:
                errors.append(ErrorCode.unknown_topic_or_partition)
            else:
                leader_epoch = partition.committed_leader_epoch
                commit_time_ms = getattr(partition, "commit_timestamp", -1)  # TxnOffsetCommit has no such field
                partitions.append(CommittedPartition(
                    topic.name, index, partition.committed_offset, leader_epoch, partition.committed_metadata,
                    topic.id, commit_time_ms,
                ))  # fmt: skip
                errors.append(ErrorCode.none)
    return RequestedCommit(tuple(partitions), errors)


async def commit_response(request: Request, requested: RequestedCommit, codes: Sequence[ErrorCode]) -> Any:
    """Return the response. `codes` are the results of `requested.partitions`, in order."""
    remaining = iter(codes)
    results = iter([error or next(remaining) for error in requested.errors])
    return await respond_by_partition(request, lambda topic, partition: {"error_code": next(results)})
