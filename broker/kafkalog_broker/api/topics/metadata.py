"""3 Metadata, versions 0 to 13: the node, and topics with their partitions.

v0       an empty list means all topics; later null means all topics, and an empty list none
v0-v3    missing topics are always created if auto.create.topics.enable is set; from v4 on only on request
v8-v10   authorized operations on the cluster (KIP-430); from v8 on also on topics
v10      topic IDs in the response
v12      topics by ID
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.admin.topic_creation import create_topics
from kafkalog_broker.admin.topic_validation import NewTopic, validate_total_partitions
from kafkalog_broker.api.cluster.cluster_description import authorized_cluster_operations, this_node
from kafkalog_broker.api.topics.topic_metadata import (
    absent_topic,
    existing_topic,
    load_leader_epochs,
    missing_topic_error,
)
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.metadata_messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    ZERO_ID,
    MetadataResponse,
    TopicMetadata,
)
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.format.names import is_internal

_FIRST_VERSION_WITH_NULL_NAMES = 12
_creation_log = LogRate(logging.getLogger(__name__))

TopicKey = str | UUID | None
"""A topic as the request identifies it: by name or by ID. None stands for the zero ID."""


class _RequestedTopics(NamedTuple):
    """The topics of a request.

    Attributes:
        permitted: Topics that the sender may describe, with the error to report if the topic does not exist.
        denied: Results for all others.
    """

    permitted: dict[TopicKey, ErrorCode]
    denied: dict[TopicKey, TopicMetadata]


@api(3, 0, 13)
async def metadata(request: Request, broker: Broker) -> MetadataResponse:
    body = request.entity
    time_slice = TimeSlice()
    if body.topics is None or (request.version == 0 and not body.topics):
        topics = await _all_topics(request, broker, time_slice)
    else:
        topics = await _requested_topics(request, broker, time_slice)
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if body.include_cluster_authorized_operations:
        operations = authorized_cluster_operations(request)
    nodes = [this_node(broker, request.connection)]
    return MetadataResponse(nodes, topics, broker.cluster_id, broker.node_id, operations)


async def _all_topics(request: Request, broker: Broker, time_slice: TimeSlice) -> list[TopicMetadata]:
    """Return all topics that the sender may describe."""
    topics: Collection[Topic] = list(broker.topics)
    if request.access is not None:
        topics = [
            topic
            async for topic in time_slice.spread(topics)
            if not request.authorization_error(topic.name, quiet=True)
        ]
    return await _existing_topics(request, broker, topics, time_slice)


async def _requested_topics(request: Request, broker: Broker, time_slice: TimeSlice) -> list[TopicMetadata]:
    """Return the topics of the request, each once: existing ones first, then missing ones, then denied ones."""
    permitted, denied = await _authorize(request, broker, time_slice)
    if request.entity.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        names = [name for name in permitted if isinstance(name, str)]
        if request.access is not None:
            names = _deny_creation(request, broker, names, permitted, denied)
        await _create_missing(broker, names, permitted)
    existing: dict[str, Topic] = {}
    missing: dict[TopicKey, TopicMetadata] = {}
    async for key, code in time_slice.spread(permitted.items()):
        if isinstance(key, str):
            topic = broker.topics.get(key)
        else:
            topic = None if key is None else broker.topics.by_id(key)
        if topic is not None:
            existing[topic.name] = topic
        elif isinstance(key, str):
            missing[key] = absent_topic(code, key, operations=_operations(request, key))
        else:
            missing[key] = absent_topic(ErrorCode.unknown_topic_id, _absent_name(request), key or ZERO_ID)
    described = await _existing_topics(request, broker, existing.values(), time_slice)
    return [*described, *missing.values(), *denied.values()]


async def _authorize(request: Request, broker: Broker, time_slice: TimeSlice) -> _RequestedTopics:
    permitted: dict[TopicKey, ErrorCode] = {}
    denied: dict[TopicKey, TopicMetadata] = {}
    async for topic in time_slice.spread(request.entity.topics):
        topic_id = topic.topic_id
        if topic.name is None or topic_id is not None:
            existing = None if topic_id is None else broker.topics.by_id(topic_id)
            if existing is not None and topic_id is not None and (code := request.authorization_error(existing.name)):
                # As in Kafka, the response discloses that the ID exists, but not the topic's name.
                denied[topic_id] = absent_topic(code, _absent_name(request), topic_id)
            else:
                permitted[topic_id] = ErrorCode.unknown_topic_id
        elif code := request.authorization_error(topic.name):
            denied[topic.name] = absent_topic(code, topic.name)._replace(is_internal=False)
        else:
            permitted[topic.name] = missing_topic_error(topic.name)
    return _RequestedTopics(permitted, denied)


def _deny_creation(
    request: Request,
    broker: Broker,
    names: list[str],
    permitted: dict[TopicKey, ErrorCode],
    denied: dict[TopicKey, TopicMetadata],
) -> list[str]:
    """Move missing topics that the sender may not create from `permitted` to `denied`, and return the other names."""
    missing = [name for name in names if name not in broker.topics]
    if not missing or request.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return names
    for name in missing:
        if not request.may(Operation.CREATE, ResourceType.TOPIC, name):
            denied[name] = absent_topic(ErrorCode.topic_authorization_failed, name)
            del permitted[name]
    return [name for name in names if name in permitted]


async def _create_missing(broker: Broker, names: list[str], errors: dict[TopicKey, ErrorCode]) -> None:
    """Create missing topics with valid names, in one write.

    Internal topics are left to their coordinators, which create them with their own configuration. The response to a
    topic that cannot be created is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka; the reason is logged.
    """
    new = [
        NewTopic(name)
        for name in names
        if errors[name] is ErrorCode.unknown_topic_or_partition and name not in broker.topics and not is_internal(name)
    ]
    if not new:
        return
    try:
        validate_total_partitions(broker, new)
        outcomes = await create_topics(broker, new)
    except BrokerError as error:
        outcomes = [error] * len(new)
    for topic, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, BrokerError):
            _creation_log.log(logging.INFO, "topic %s is not created: %s", topic.name, outcome)


async def _existing_topics(
    request: Request, broker: Broker, topics: Collection[Topic], time_slice: TimeSlice
) -> list[TopicMetadata]:
    await load_leader_epochs(broker, topics)
    return [
        existing_topic(broker, topic, _operations(request, topic.name), range(topic.partitions))
        async for topic in time_slice.spread(topics)
    ]


def _operations(request: Request, topic: str) -> int:
    """Return the operations on a topic that the sender may perform, if the request asks for them (KIP-430)."""
    if request.entity.include_topic_authorized_operations:
        return request.operations(ResourceType.TOPIC, topic)
    return AUTHORIZED_OPERATIONS_OMITTED


def _absent_name(request: Request) -> str | None:
    """Return the name in results for topics that the request identifies by ID."""
    return None if request.version >= _FIRST_VERSION_WITH_NULL_NAMES else ""
