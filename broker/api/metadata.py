"""3 Metadata, versions 0 to 13: the node, and topics with their partitions.

v0       an empty list means all topics; later null does, and an empty list means none
v0-v3    always create missing topics, as far as auto.create.topics.enable allows; v4 asks
v8-v10   operations of the cluster (KIP-430); v8 also of topics
v10      topic ids in the answer; v12 takes them instead of names
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker.admin.nodes import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS, this_node
from broker.admin.topic_changes import NewTopic, create_topic
from broker.admin.topic_listing import learn_leader_epochs, missing_topic, topic_metadata
from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Encoded, Request, api
from broker.protocol.metadata_response import TopicMetadata, encode_metadata_response
from broker.storage.topic_registry import Topic, check_topic_name
from kafkalog_spark.log.names import is_internal

if TYPE_CHECKING:
    from broker.server import Broker

_log = logging.getLogger("kafkalog.broker")


@api(3, 0, 13)
async def handle(request: Request, broker: Broker) -> Encoded:
    asked = request.entity
    operations = (
        TOPIC_OPERATIONS if getattr(asked, "include_topic_authorized_operations", False) else OPERATIONS_NOT_ASKED_FOR
    )
    if asked.topics is None or (request.version == 0 and not asked.topics):
        await learn_leader_epochs(broker, broker.topics)
        topics = [topic_metadata(broker, topic, operations=operations) for topic in broker.topics]
    else:
        topics = await _asked_topics(asked, broker, operations)
    return encode_metadata_response(
        request.version,
        [this_node(broker, request.connection)],
        topics,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS
            if getattr(asked, "include_cluster_authorized_operations", False)
            else OPERATIONS_NOT_ASKED_FOR
        ),
    )


async def _asked_topics(asked: Any, broker: Broker, operations: int) -> list[TopicMetadata]:
    """Those that exist first, each once."""
    create = getattr(asked, "allow_auto_topic_creation", True)
    found: dict[str, Topic] = {}
    missing: dict[Any, TopicMetadata] = {}
    for wanted in asked.topics:
        topic_id = getattr(wanted, "topic_id", None)
        if wanted.name is None or topic_id is not None:
            topic = broker.topics.by_id(topic_id) if topic_id is not None else None
            if topic is None:
                missing[topic_id] = _unknown_id(topic_id)
                continue
        else:
            answer = await _by_name(broker, wanted.name, operations, create=create)
            if isinstance(answer, TopicMetadata):
                missing[wanted.name] = answer
                continue
            topic = answer
        found[topic.name] = topic
    await learn_leader_epochs(broker, found.values())
    known = [topic_metadata(broker, topic, operations=operations) for topic in found.values()]
    return [*known, *missing.values()]


async def _by_name(broker: Broker, name: str, operations: int, *, create: bool) -> Topic | TopicMetadata:
    topic = broker.topics.get(name)
    if topic is not None:
        return topic
    try:
        check_topic_name(name)
    except BrokerError as error:
        _log.info("topic %r does not exist: %s", name, error)
        return missing_topic(error.code, name, operations=operations)
    # Internal topics have settings of their own: the coordinators make them.
    if create and broker.config.auto_create_topics_enable and not is_internal(name):
        try:
            await create_topic(broker, NewTopic(name))
        except BrokerError as error:
            # Of a proper name that cannot be created, say one that collides with another, Kafka says it is unknown.
            _log.info("topic %s is not created: %s", name, error)
        topic = broker.topics.get(name)
    return topic or missing_topic(ErrorCode.unknown_topic_or_partition, name, operations=operations)


def _unknown_id(topic_id: Any) -> TopicMetadata:
    if topic_id is None:
        return missing_topic(ErrorCode.unknown_topic_id, None)
    return missing_topic(ErrorCode.unknown_topic_id, None, topic_id)
