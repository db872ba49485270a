"""20 DeleteTopics, versions 1 to 6. v5: error messages; v6: by topic id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.admin.topic_changes import delete_topic
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module

NO_SUCH_TOPIC = "This server does not host this topic-partition."
NO_SUCH_ID = "This server does not host this topic ID."
Refusal = tuple[ErrorCode, str]
Wanted = tuple[str | None, UUID | None]

if TYPE_CHECKING:
    from broker.server import Broker


@api(20, 1, 6)
async def handle(request: Request, broker: Broker) -> Any:
    module = response_module(request)
    wanted: list[Wanted] = (
        [(topic.name, topic.topic_id) for topic in request.entity.topics]
        if request.version >= 6
        else [(name, None) for name in request.entity.topic_names]
    )
    results = []
    for name, topic_id, refused in _resolved(broker, wanted, request.version):
        code, what = refused or (ErrorCode.none, None)
        if name is not None and refused is None:
            code, what, topic_id = await _delete(broker, name)
        results.append(
            entity(
                module.DeletableTopicResult,
                name=name,
                topic_id=topic_id,
                error_code=code,
                error_message=what,
            )
        )
    return entity(module.DeleteTopicsResponse, responses=tuple(results))


async def _delete(broker: Broker, name: str) -> tuple[ErrorCode, str | None, UUID | None]:
    """Error, its text, and the id of the topic that is gone."""
    try:
        return ErrorCode.none, None, (await delete_topic(broker, name)).id
    except BrokerError as error:
        unknown = error.code is ErrorCode.unknown_topic_or_partition
        return error.code, NO_SUCH_TOPIC if unknown else error.what, None


def _resolved(
    broker: Broker, wanted: list[Wanted], version: int
) -> list[tuple[str | None, UUID | None, Refusal | None]]:
    """(name, id, why not) of each topic that is to go; those without a reason have a name."""
    if not broker.config.delete_topic_enable:
        code = ErrorCode.topic_deletion_disabled if version >= 3 else ErrorCode.invalid_request
        return [(name, topic_id, (code, "Topic deletion is disabled.")) for name, topic_id in wanted]
    names = [name for name, topic_id in wanted if topic_id is None and name is not None]
    ids = [topic_id for name, topic_id in wanted if name is None and topic_id is not None]
    results: dict[Any, tuple[str | None, UUID | None, Refusal | None]] = {}
    for name, topic_id in wanted:
        why = None
        if name is None and topic_id is None:
            why = "Neither topic name nor id were specified."
        elif name is not None and topic_id is not None:
            why = "You may not specify both topic name and topic id."
        elif name is not None and names.count(name) > 1:
            why = "Duplicate topic name."
        elif topic_id is not None and ids.count(topic_id) > 1:
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
            elif topic.name in names:
                why = "The provided topic name maps to an ID that was already supplied."
                results[topic_id] = (topic.name, topic_id, (ErrorCode.invalid_request, why))
            else:
                results[topic_id] = (topic.name, topic_id, None)
    refused_names = {name for name, topic_id, why in results.values() if topic_id is not None and why is not None}
    return [
        entry for entry in results.values() if not (entry[1] is None and entry[0] in refused_names and not entry[2])
    ]
