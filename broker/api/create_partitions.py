"""37 CreatePartitions, versions 0 to 3: more partitions for topics that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.admin.topic_changes import add_partitions, check_more_partitions
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api
from broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from broker.server import Broker


@api(37, 0, 3)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    names = [topic.name for topic in asked.topics]
    results = {}
    for topic in asked.topics:
        code, what = ErrorCode.none, None
        try:
            if names.count(topic.name) > 1:
                raise BrokerError(ErrorCode.invalid_request, "Duplicate topic name.")
            nodes = None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
            check_more_partitions(broker, topic.name, topic.count, nodes)
            if not asked.validate_only:
                await add_partitions(broker, topic.name, topic.count)
        except BrokerError as error:
            code = error.code
            what = None if code is ErrorCode.unknown_topic_or_partition else error.what
        results[topic.name] = entity(
            module.CreatePartitionsTopicResult, name=topic.name, error_code=code, error_message=what
        )
    return entity(module.CreatePartitionsResponse, results=tuple(results.values()))
