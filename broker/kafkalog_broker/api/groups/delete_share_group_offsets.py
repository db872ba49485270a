"""92 DeleteShareGroupOffsets, version 0: deletes state of a share group without members, for some topics (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog_broker.admin.share_group_state import delete_topic_state
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import DENIALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_state_shard import UNKNOWN_PARTITION_MESSAGE


@api(92, 0, 0)
async def delete_share_group_offsets(request: Request, broker: Broker) -> Any:
    """Delete the offsets of topics.

    Results are in Kafka's order: denied topics, deleted ones, those without state, unknown ones, failed ones.
    """
    body = request.entity
    if not body.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    names: dict[UUID, str] = {}
    denied, unknown = [], []
    for name in (topic.topic_name for topic in body.topics):
        existing_topic = broker.topics.get(name)
        if not request.may(Operation.READ, ResourceType.TOPIC, name):
            denied.append(_topic_result(name, None, *DENIALS[ResourceType.TOPIC]))
        elif existing_topic is None:
            unknown.append(_topic_result(name, None, ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION_MESSAGE))
        else:
            names[existing_topic.id] = name
    try:
        outcomes = await delete_topic_state(broker, body.group_id, names.keys(), TimeSlice())
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    deleted = [_topic_result(names[topic_id], topic_id) for topic_id, error in outcomes.items() if error is None]
    without_state = [
        _topic_result(name, None, ErrorCode.unknown_topic_or_partition, "There is no offset information to delete.")
        for topic_id, name in names.items()
        if topic_id not in outcomes
    ]
    failed = [
        _topic_result(names[topic_id], topic_id, error.code, error.what)
        for topic_id, error in outcomes.items()
        if error is not None
    ]
    return build_response(request, responses=[*denied, *deleted, *without_state, *unknown, *failed])


def _topic_result(
    name: str, topic_id: UUID | None, code: ErrorCode = ErrorCode.none, message: str | None = None
) -> dict[str, Any]:
    return {"topic_name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
