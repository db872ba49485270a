"""91 AlterShareGroupOffsets, version 0: where a share group without members begins (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog_broker.admin import share_groups
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.share.state.state_shard import UNKNOWN_PARTITION


@api(91, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, Turn()
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    wanted: dict[UUID, dict[int, int]] = {}
    refused: dict[str, ErrorCode] = {}
    async for topic in turn.spread(asked.topics):
        known = broker.topics.get(topic.topic_name)
        code = request.refused(topic.topic_name)
        if code is ErrorCode.none and known is None:
            code = ErrorCode.unknown_topic_or_partition
        if code is not ErrorCode.none or known is None:
            refused[topic.topic_name] = code
            continue
        wanted[known.id] = {
            one.partition_index: one.start_offset
            for one in topic.partitions
            if 0 <= one.partition_index < known.partitions
        }
    try:
        failed_partitions = await share_groups.alter_offsets(broker, asked.group_id, wanted, turn)
    except BrokerError as error:
        return _failed(request, error.code, error.what)
    await broker.flush_offsets(asked.group_id)
    topics = []
    async for topic in turn.spread(asked.topics):
        known = broker.topics.get(topic.topic_name)
        topic_id = None if known is None else known.id
        refusal = refused.get(topic.topic_name)
        partitions = tuple(
            _partition(request, one.partition_index, refusal, failed_partitions.get((topic_id, one.partition_index)),
                       is_known=topic_id in wanted and one.partition_index in wanted[topic_id])
            for one in topic.partitions
        )  # fmt: skip
        kind = response_module(request).AlterShareGroupOffsetsResponseTopic
        topics.append(entity(kind, topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions))
    return _failed(request, ErrorCode.none, None, tuple(topics))


def _partition(
    request: Request, index: int, refused: ErrorCode | None, error: BrokerError | None, *, is_known: bool
) -> Any:
    code, message = ErrorCode.none, None
    if refused is not None:
        code = refused
    elif not is_known:
        code = ErrorCode.unknown_topic_or_partition
    elif error is not None:
        code, message = error.code, error.what
    if code is ErrorCode.unknown_topic_or_partition:
        message = UNKNOWN_PARTITION
    kind = response_module(request).AlterShareGroupOffsetsResponsePartition
    return entity(kind, partition_index=index, error_code=code, error_message=message)


def _failed(request: Request, code: ErrorCode, what: str | None, topics: tuple[Any, ...] = ()) -> Any:
    kind = response_module(request).AlterShareGroupOffsetsResponse
    return entity(kind, error_code=code, error_message=what, responses=topics)


@on_error(91)
def failed(request: Request, code: ErrorCode) -> Any:
    return _failed(request, code, None)
