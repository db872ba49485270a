"""20 DeleteTopics, versions 1 to 6. v5: error messages; v6: by topic id."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from kafkalog_broker.admin.topic_changes import delete_topics
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, TEXTS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.storage.topic_registry import Outcome

NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_ID = "This server does not host this topic ID."
Refusal = tuple[ErrorCode, str]
Wanted = tuple[str | None, UUID | None]
Resolved = tuple[str | None, UUID | None, Refusal | None]


@api(20, 1, 6)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    wanted: list[Wanted] = (
        [(topic.name, topic.topic_id) for topic in request.entity.topics]
        if request.version >= 6
        else [(name, None) for name in request.entity.topic_names]
    )
    resolved = _resolved(request, broker, wanted)
    if request.access is not None:
        resolved = [_permitted(request, broker, one) for one in resolved]
    names = [name for name, _, refused in resolved if name is not None and refused is None]
    gone = dict(zip(names, await delete_topics(broker, names, request.charge), strict=True)) if names else {}
    results = []
    for name, topic_id, refused in resolved:
        code, what = refused or (ErrorCode.none, None)
        if name is not None and refused is None:
            code, what, topic_id = _outcome(gone[name], topic_id)
        results.append(
            entity(
                module.DeletableTopicResult,
                name=name,
                topic_id=topic_id,
                error_code=code,
                error_message=what,
            )
        )
    return respond(request, responses=tuple(results))


def _may_describe(request: Request, name: str) -> bool:
    if request.may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return True
    return request.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def _may_be_compared(request: Request, name: str) -> bool:
    """True if the sender may be told that a name and an id are of one topic."""
    return request.refused(name, quiet=True) is ErrorCode.none and _may_describe(request, name)


def _permitted(request: Request, broker: Broker, asked: Resolved) -> Resolved:
    """The same, or refused: of a topic that may not be described, nothing is given away (ControllerApis.deleteTopics).
    By name both DESCRIBE and DELETE are needed, by id DELETE; that a name is of no topic is said to who may describe
    it."""
    name, topic_id, refused = asked
    if name is None or refused is not None:
        return asked
    known, may = _may_describe(request, name), request.refused(name, quiet=True) is ErrorCode.none
    if may and (known or topic_id is not None):
        return asked
    if known and name not in broker.topics:
        return asked
    if may:  # for the log: what is missing
        request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    else:
        request.refused(name)
    code = ErrorCode.topic_authorization_failed
    return name if known or topic_id is None else None, topic_id, (code, TEXTS[code])


def _outcome(outcome: Outcome, asked: UUID | None) -> tuple[ErrorCode, str | None, UUID | None]:
    """Error, its text, and the id of the topic that is gone, or was asked for and stays."""
    if isinstance(outcome, BrokerError):
        if outcome.code is ErrorCode.throttling_quota_exceeded:
            return outcome.code, outcome.what, asked
        unknown = outcome.code is ErrorCode.unknown_topic_or_partition
        return outcome.code, NO_SUCH_TOPIC if unknown else outcome.what, None
    return ErrorCode.none, None, outcome.id


def _resolved(request: Request, broker: Broker, wanted: list[Wanted]) -> list[Resolved]:
    """(name, id, why not) of each topic that is to go; those without a reason have a name."""
    if not broker.config.delete_topic_enable:
        code = ErrorCode.topic_deletion_disabled if request.version >= 3 else ErrorCode.invalid_request
        return [(name, topic_id, (code, "Topic deletion is disabled.")) for name, topic_id in wanted]
    names = Counter(name for name, topic_id in wanted if topic_id is None and name is not None)
    ids = Counter(topic_id for name, topic_id in wanted if name is None and topic_id is not None)
    results: dict[Any, Resolved] = {}
    for name, topic_id in wanted:
        why = None
        if name is None and topic_id is None:
            why = "Neither topic name nor id were specified."
        elif name is not None and topic_id is not None:
            why = "You may not specify both topic name and topic id."
        elif name is not None and names[name] > 1:
            why = "Duplicate topic name."
        elif topic_id is not None and ids[topic_id] > 1:
            why = "Duplicate topic id."
        if why is not None:
            results[name, topic_id] = (name, topic_id, (ErrorCode.invalid_request, why))
        elif name is not None:
            results[name, None] = (name, None, None)
        else:
            assert topic_id is not None
            topic = broker.topics.by_id(topic_id)
            if topic is None:
                results[topic_id] = (None, topic_id, (ErrorCode.unknown_topic_id, NO_SUCH_ID))
            elif topic.name in names and _may_be_compared(request, topic.name):
                why = "The provided topic name maps to an ID that was already supplied."
                results[topic_id] = (topic.name, topic_id, (ErrorCode.invalid_request, why))
            else:
                results[topic_id] = (topic.name, topic_id, None)
    refused_names = {name for name, topic_id, why in results.values() if topic_id is not None and why is not None}
    return [
        entry for entry in results.values() if not (entry[1] is None and entry[0] in refused_names and not entry[2])
    ]
