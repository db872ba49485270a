"""19 CreateTopics, versions 2 to 7. v4: -1 for the broker's defaults; v5: configuration in the answer; v7: topic ids.

Every topic has its own result. Topics named twice are refused, each once, and come last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker.admin.config_listing import topic_entries
from broker.admin.topic_changes import NewTopic, check_new_topic, check_total, create_topic
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api, on_error
from broker.protocol.response_entity import entity, response_module
from broker.storage.log_dir import new_uuid
from broker.storage.topic_registry import Topic

if TYPE_CHECKING:
    from broker.server import Broker

_log = logging.getLogger("kafkalog.broker")


@api(19, 2, 7)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    module = response_module(request)
    names = [topic.name for topic in asked.topics]
    results = []
    check_total(sum(max(topic.num_partitions, len(topic.assignments)) for topic in asked.topics))
    for topic in asked.topics:
        if names.count(topic.name) > 1:
            continue
        try:
            new = _new_topic(topic)
            if asked.validate_only:
                partitions, _ = check_new_topic(broker, new)
                overrides = {name: value for name, value in new.configs.items() if value is not None}
                made = Topic(new.name, new_uuid(), partitions, overrides)
            else:
                made = await create_topic(broker, new)
            results.append(_created(module, broker, made))
        except BrokerError as error:
            _log.info("topic %r is not created: %s: %s", topic.name, error.code.name, error)
            results.append(_refused(module, topic.name, error.code, error.what))
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        results.append(_refused(module, name, ErrorCode.invalid_request, "Duplicate topic name."))
    return entity(module.CreateTopicsResponse, topics=tuple(results))


@on_error(19)
def error_answer(request: Request, code: ErrorCode) -> Any:
    module = response_module(request)
    topics = tuple(_refused(module, topic.name, code, None) for topic in request.entity.topics)
    return entity(module.CreateTopicsResponse, topics=topics)


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _created(module: Any, broker: Broker, topic: Topic) -> Any:
    configs = ()
    if hasattr(module, "CreatableTopicConfigs"):
        configs = tuple(
            entity(
                module.CreatableTopicConfigs,
                name=entry.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(broker, topic.configs)
        )
    return entity(
        module.CreatableTopicResult,
        name=topic.name,
        topic_id=topic.id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=configs,
    )


def _refused(module: Any, name: str, code: ErrorCode, what: str | None) -> Any:
    return entity(
        module.CreatableTopicResult,
        name=name,
        topic_id=None,
        error_code=code,
        error_message=what,
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )
