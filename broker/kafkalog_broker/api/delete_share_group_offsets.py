"""92 DeleteShareGroupOffsets, version 0: a share group without members forgets topics (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog_broker.admin import share_groups
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.share.state.state_shard import UNKNOWN_PARTITION

_NOTHING_TO_DELETE = "There is no offset information to delete."
_TOPIC_REFUSED = "Topic authorization failed."


@api(92, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, Turn()
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    refused, named, unknown = [], {}, []
    async for topic in turn.spread(asked.topics):
        name = topic.topic_name
        known = broker.topics.get(name)
        if not request.may(Operation.READ, ResourceType.TOPIC, name):
            refused.append(_topic(request, name, None, ErrorCode.topic_authorization_failed, _TOPIC_REFUSED))
        elif known is None:
            unknown.append(_topic(request, name, None, ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION))
        else:
            named[known.id] = name
    try:
        outcomes = await share_groups.delete_offsets(broker, asked.group_id, named, turn)
    except BrokerError as error:
        return _answer(request, error.code, error.what)
    await broker.flush_offsets(asked.group_id)
    deleted, failed_topics = [], []
    for topic_id, outcome in outcomes.items():
        if outcome is None:
            deleted.append(_topic(request, named[topic_id], topic_id))
        else:
            failed_topics.append(_topic(request, named[topic_id], topic_id, outcome.code, outcome.what))
    without = [
        _topic(request, name, None, ErrorCode.unknown_topic_or_partition, _NOTHING_TO_DELETE)
        for topic_id, name in named.items()
        if topic_id not in outcomes
    ]
    return _answer(request, ErrorCode.none, None, (*refused, *deleted, *without, *unknown, *failed_topics))


def _topic(
    request: Request, name: str, topic_id: UUID | None, code: ErrorCode = ErrorCode.none, what: str | None = None
) -> Any:
    kind = response_module(request).DeleteShareGroupOffsetsResponseTopic
    return entity(kind, topic_name=name, topic_id=topic_id, error_code=code, error_message=what)


def _answer(request: Request, code: ErrorCode, what: str | None, topics: tuple[Any, ...] = ()) -> Any:
    kind = response_module(request).DeleteShareGroupOffsetsResponse
    return entity(kind, error_code=code, error_message=what, responses=topics)


@on_error(92)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, None)
