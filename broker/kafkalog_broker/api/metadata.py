"""Topics as clients see them.

3 Metadata, versions 0 to 13: the node, and topics with their partitions.

v0       an empty list means all topics; later null does, and an empty list means none
v0-v3    always create missing topics, as far as auto.create.topics.enable allows; v4 asks
v8-v10   operations of the cluster (KIP-430); v8 also of topics
v10      topic ids in the answer; v12 takes them instead of names

75 DescribeTopicPartitions, version 0: partitions of topics, page by page (KIP-966). Topics are sorted by name. A page
holds at most `response_partition_limit` partitions, and the answer's cursor says where the next one begins.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalog_broker.admin.responses import cluster_operations, this_node
from kafkalog_broker.admin.topic_changes import NewTopic, check_totals, create_topics
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.hot_messages import (
    OPERATIONS_NOT_ASKED_FOR,
    ZERO_ID,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.topic import Topic, check_topic_name
from kafkalog_spark.format.names import is_internal

_NULL_NAMES_FROM = 12
_refused = LogRate(logging.getLogger(__name__))


@api(3, 0, 13)
async def metadata(request: Request, broker: Broker) -> MetadataResponse:
    asked, turn = request.entity, TimeSlice()
    if asked.topics is None or (request.version == 0 and not asked.topics):
        all_topics: Collection[Topic] = list(broker.topics)
        if request.access is not None:
            all_topics = [
                topic async for topic in turn.spread(all_topics) if not request.refused(topic.name, quiet=True)
            ]
        topics = await _described(request, broker, all_topics, turn)
    else:
        topics = await _asked_topics(request, broker, turn)
    operations = OPERATIONS_NOT_ASKED_FOR
    if getattr(asked, "include_cluster_authorized_operations", False):
        operations = cluster_operations(request)
    nodes = [this_node(broker, request.connection)]
    return MetadataResponse(nodes, topics, broker.cluster_id, broker.node_id, operations)


def _operations(request: Request, name: str) -> int:
    if getattr(request.entity, "include_topic_authorized_operations", False):
        return request.operations(ResourceType.TOPIC, name)
    return OPERATIONS_NOT_ASKED_FOR


async def _asked_topics(request: Request, broker: Broker, turn: TimeSlice) -> list[TopicMetadata]:
    """Those that exist first, each once; then what is missing, and what is not shown."""
    asked = request.entity
    wanted: dict[Any, ErrorCode] = {}  # by name, or id; what is said of it if there is no such topic
    refused: dict[Any, TopicMetadata] = {}
    no_name = None if request.version >= _NULL_NAMES_FROM else ""
    async for topic in turn.spread(asked.topics):
        topic_id = getattr(topic, "topic_id", None)
        if topic.name is None or topic_id is not None:
            known = None if topic_id is None else broker.topics.by_id(topic_id)
            if known is not None and topic_id is not None and (code := request.refused(known.name)):
                refused[topic_id] = _missing(code, no_name, topic_id)  # as in Kafka, ids are no secret
            else:
                wanted[topic_id] = ErrorCode.unknown_topic_id
        elif code := request.refused(topic.name):
            refused[topic.name] = _missing(code, topic.name)._replace(is_internal=False)
        else:
            wanted[topic.name] = _code_of_missing(topic.name)
    if getattr(asked, "allow_auto_topic_creation", True) and broker.config.auto_create_topics_enable:
        names = [name for name in wanted if isinstance(name, str)]
        if request.access is not None:
            names = _may_be_created(request, broker, names, wanted, refused)
        await _create_missing(broker, names, wanted)
    found: dict[str, Topic] = {}
    missing: dict[Any, TopicMetadata] = {}
    async for key, code in turn.spread(wanted.items()):
        if isinstance(key, str):
            known = broker.topics.get(key)
        else:
            known = None if key is None else broker.topics.by_id(key)
        if known is not None:
            found[known.name] = known
        elif isinstance(key, str):
            missing[key] = _missing(code, key, operations=_operations(request, key))
        else:
            missing[key] = _missing(ErrorCode.unknown_topic_id, no_name, key or ZERO_ID)
    return [*await _described(request, broker, found.values(), turn), *missing.values(), *refused.values()]


def _may_be_created(
    request: Request, broker: Broker, names: list[str], wanted: dict[Any, ErrorCode], refused: dict[Any, TopicMetadata]
) -> list[str]:
    """`names` without those that are missing and that the sender may not create, which are refused."""
    missing = [name for name in names if name not in broker.topics]
    if not missing or request.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return names
    for name in missing:
        if not request.may(Operation.CREATE, ResourceType.TOPIC, name):
            refused[name] = _missing(ErrorCode.topic_authorization_failed, name)
            del wanted[name]
    return [name for name in names if name in wanted]


def _code_of_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except BrokerError as error:
        _refused.log(logging.INFO, "topic %.200r does not exist: %.300s", name, error)
        return error.code
    return ErrorCode.unknown_topic_or_partition


async def _create_missing(broker: Broker, names: list[str], codes: dict[Any, ErrorCode]) -> None:
    """Make missing topics of a proper name, all at once; coordinators make internal ones, with their own settings."""
    new = [
        NewTopic(name)
        for name in names
        if codes[name] is ErrorCode.unknown_topic_or_partition and name not in broker.topics and not is_internal(name)
    ]
    if not new:
        return
    try:
        check_totals(broker, ((topic.partitions, 0) for topic in new))
        outcomes = await create_topics(broker, new)
    except BrokerError as error:
        outcomes = [error] * len(new)
    for topic, outcome in zip(new, outcomes, strict=True):
        if isinstance(outcome, BrokerError):
            # Of a proper name that cannot be created, say one that collides with another, Kafka says it is unknown.
            _refused.log(logging.INFO, "topic %s is not created: %s", topic.name, outcome)


async def _described(
    request: Request, broker: Broker, topics: Collection[Topic], turn: TimeSlice
) -> list[TopicMetadata]:
    await _learn_leader_epochs(broker, topics)
    return [
        _present(broker, topic, _operations(request, topic.name), range(topic.partitions))
        async for topic in turn.spread(topics)
    ]


@api(75, 0, 0)
async def describe_topic_partitions(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    names = _names(asked, broker)
    refused: list[TopicMetadata] = []
    if request.access is not None:
        shown = []
        async for name in turn.spread(names):
            code = request.refused(name, quiet=not asked.topics)
            if code is ErrorCode.none:
                shown.append(name)
            elif asked.topics:
                refused.append(_missing(code, name))
        names = shown
    await _learn_leader_epochs(broker, [topic for name in names if (topic := broker.topics.get(name)) is not None])
    limit = max(1, min(asked.response_partition_limit, broker.config.max_request_partition_size_limit))
    cursor = asked.cursor
    found: list[TopicMetadata] = []
    following: tuple[str, int] | None = None
    async for name in turn.spread(names):
        if limit <= 0:
            following = (name, 0)
            break
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic, operations = broker.topics.get(name), request.operations(ResourceType.TOPIC, name)
        if topic is None:
            found.append(_missing(_code_of_missing(name), name, operations=operations))
            continue
        window = range(start, min(start + limit, topic.partitions))
        found.append(_present(broker, topic, operations, window))
        limit -= len(window)
        if window and window.stop < topic.partitions:
            following = (name, window.stop)
            break
    return respond(
        request,
        topics=[*found, *refused],
        next_cursor=following and {"topic_name": following[0], "partition_index": following[1]},
    )


def _names(asked: Any, broker: Broker) -> list[str]:
    """Sorted, from the cursor's topic on; without names in the request all topics. Raises BrokerError."""
    cursor = asked.cursor
    names = {topic.name for topic in asked.topics} or set(broker.topics.topics)
    if cursor is not None:
        if asked.topics and cursor.topic_name not in names:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
            )
        if cursor.partition_index < 0:
            raise BrokerError(ErrorCode.invalid_request, "the cursor's partition must not be negative")
    return sorted(name for name in names if cursor is None or name >= cursor.topic_name)


# Topics and their partitions as plain tuples, for Metadata and DescribeTopicPartitions.

_NO_LEADER = -1


def _partition(broker: Broker, topic: Topic, index: int) -> PartitionMetadata:
    """This node leads every partition that it has; one in a failed log directory has no leader."""
    nodes = (broker.node_id,)
    if broker.logs.is_online(topic.name, index):
        try:
            return PartitionMetadata(index, broker.node_id, nodes, nodes, broker.logs.leader_epoch(topic.name, index))
        except BrokerError:  # its directory went offline just now
            pass
    return PartitionMetadata(index, _NO_LEADER, nodes, nodes, 0, nodes, error_code=int(ErrorCode.leader_not_available))


async def _learn_leader_epochs(broker: Broker, topics: Iterable[Topic]) -> None:
    """Before topics are described: look at logs that were not opened yet, maybe thousands, in a thread."""
    unknown = broker.logs.unknown_leader_epochs(topics)

    def read() -> None:
        for entry in unknown:
            entry.read_leader_epoch()

    if unknown:
        await broker.run_blocking(read)


def _present(broker: Broker, topic: Topic, operations: int, indexes: Sequence[int]) -> TopicMetadata:
    partitions = [_partition(broker, topic, index) for index in indexes]
    internal = is_internal(topic.name)
    return TopicMetadata(topic.name, topic.id, partitions, is_internal=internal, topic_authorized_operations=operations)


def _missing(
    code: ErrorCode, name: str | None, topic_id: UUID = ZERO_ID, *, operations: int = OPERATIONS_NOT_ASKED_FOR
) -> TopicMetadata:
    return TopicMetadata(name, topic_id, (), int(code), name is not None and is_internal(name), operations)
