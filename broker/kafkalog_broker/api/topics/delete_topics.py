"""20 DeleteTopics, versions 1 to 6.

v5  error messages
v6  topics by ID
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.admin import topic_deletion
from kafkalog_broker.api.error_messages import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, DENIAL_MESSAGES, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome

_FIRST_VERSION_WITH_DELETION_DISABLED = 3
_FIRST_VERSION_WITH_IDS = 6


class _TopicToDelete(NamedTuple):
    """A topic of the request.

    Attributes:
        name: Name of the topic. For a topic by ID it is looked up; None if the ID is unknown.
        topic_id: ID of the topic, or None if the request has its name.
        error: Why the topic is not deleted, if the request alone is the reason; else None.
    """

    name: str | None
    topic_id: UUID | None
    error: BrokerError | None = None


@api(20, 1, 6)
async def delete_topics(request: Request, broker: Broker) -> Any:
    time_slice = TimeSlice()
    topics = await run_in_slices(_resolve(request, broker, _requested_topics(request)), time_slice)
    if request.access is not None:
        topics = [_authorize(request, broker, topic) async for topic in time_slice.spread(topics)]
    names = [topic.name for topic in topics if topic.name is not None and topic.error is None]
    outcomes: dict[str, Outcome] = {}
    if names:
        deleted = await topic_deletion.delete_topics(broker, names, request.charge)
        outcomes = dict(zip(names, deleted, strict=True))
    results = (_result(topic, topic.error or outcomes[topic.name or ""]) for topic in topics)
    return await respond_in_slices(request, "responses", results)


def _requested_topics(request: Request) -> list[_TopicToDelete]:
    if request.version >= _FIRST_VERSION_WITH_IDS:
        return [_TopicToDelete(topic.name, topic.topic_id) for topic in request.entity.topics]
    return [_TopicToDelete(name, None) for name in request.entity.topic_names]


def _resolve(
    request: Request, broker: Broker, topics: Sequence[_TopicToDelete]
) -> Generator[None, None, list[_TopicToDelete]]:
    """Look up the names of topics by ID and find duplicates. The errors and their order are those of Kafka."""
    if not broker.config.delete_topic_enable:
        has_code = request.version >= _FIRST_VERSION_WITH_DELETION_DISABLED
        code = ErrorCode.topic_deletion_disabled if has_code else ErrorCode.invalid_request
        return [topic._replace(error=BrokerError(code, "Topic deletion is disabled.")) for topic in topics]
    names = Counter(topic.name for topic in topics if topic.topic_id is None and topic.name is not None)
    ids = Counter(topic.topic_id for topic in topics if topic.name is None and topic.topic_id is not None)
    resolved: dict[tuple[str | None, UUID | None], _TopicToDelete] = {}
    refused_with_id: set[str | None] = set()  # names of refused entries with an ID
    for topic in topics:
        yield
        key = (topic.name, topic.topic_id)
        message = None
        if topic.name is None and topic.topic_id is None:
            message = "Neither topic name nor id were specified."
        elif topic.name is not None and topic.topic_id is not None:
            message = "You may not specify both topic name and topic id."
        elif topic.name is not None and names[topic.name] > 1:
            message = "Duplicate topic name."
        elif topic.topic_id is not None and ids[topic.topic_id] > 1:
            message = "Duplicate topic id."
        if message is not None:
            resolved[key] = topic._replace(error=BrokerError(ErrorCode.invalid_request, message))
        elif topic.topic_id is None:
            resolved[key] = topic
        elif (existing_topic := broker.topics.by_id(topic.topic_id)) is None:
            resolved[key] = topic._replace(error=BrokerError(ErrorCode.unknown_topic_id, UNKNOWN_TOPIC_ID))
        elif existing_topic.name in names and _may_describe_and_delete(request, existing_topic.name):
            message = "The provided topic name maps to an ID that was already supplied."
            error = BrokerError(ErrorCode.invalid_request, message)
            resolved[key] = topic._replace(name=existing_topic.name, error=error)
        else:
            resolved[key] = topic._replace(name=existing_topic.name)
        if topic.topic_id is not None and resolved[key].error is not None:
            refused_with_id.add(resolved[key].name)
    # If a topic is refused with its ID, the response has no second result for its name.
    return [
        topic
        for topic in resolved.values()
        if topic.topic_id is not None or topic.error is not None or topic.name not in refused_with_id
    ]


def _authorize(request: Request, broker: Broker, topic: _TopicToDelete) -> _TopicToDelete:
    """Return `topic`, with an error if the sender may not delete it (Kafka: `ControllerApis.deleteTopics`).

    A topic by name needs the rights to DESCRIBE and DELETE it, a topic by ID the right to DELETE it. Without the right
    to DESCRIBE, neither the existence of a topic nor the name of a topic by ID is disclosed.
    """
    name = topic.name
    if name is None or topic.error is not None:
        return topic
    may_describe = _may_describe(request, name)
    may_delete = request.authorization_error(name, quiet=True) is ErrorCode.none
    if may_delete and (may_describe or topic.topic_id is not None):
        return topic
    if may_describe and name not in broker.topics:
        return topic  # will be UNKNOWN_TOPIC_OR_PARTITION
    # Ask again for the missing right, this time with a line in the log.
    if may_delete:
        request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    else:
        request.authorization_error(name)
    code = ErrorCode.topic_authorization_failed
    shown_name = name if may_describe or topic.topic_id is None else None
    return _TopicToDelete(shown_name, topic.topic_id, BrokerError(code, DENIAL_MESSAGES[code]))


def _may_describe_and_delete(request: Request, name: str) -> bool:
    return request.authorization_error(name, quiet=True) is ErrorCode.none and _may_describe(request, name)


def _may_describe(request: Request, name: str) -> bool:
    if request.may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return True
    return request.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def _result(topic: _TopicToDelete, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Topic):
        return {"name": topic.name, "topic_id": outcome.id, "error_code": ErrorCode.none, "error_message": None}
    code, topic_id = outcome.code, topic.topic_id
    message = UNKNOWN_TOPIC_OR_PARTITION if code is ErrorCode.unknown_topic_or_partition else outcome.what
    if topic.error is None and code is not ErrorCode.throttling_quota_exceeded:
        topic_id = None
    return {"name": topic.name, "topic_id": topic_id, "error_code": code, "error_message": message}
