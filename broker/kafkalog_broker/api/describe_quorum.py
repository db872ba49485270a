"""55 DescribeQuorum, versions 0 to 2: this node, as the one voter of the controllers' quorum.

v1  times of the last fetch (KIP-836)
v2  directory ids, listeners of the voters, texts of errors (KIP-853)

There is no metadata log. Its end and its high watermark are the generation of the topics, which grows with each change
as that log does.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import this_node
from kafkalog_broker.api.describe_producers import NO_SUCH_TOPIC
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module

METADATA_TOPIC = "__cluster_metadata"
_EPOCH = 1  # of a node that was never voted for again


@api(55, 0, 2)
def handle(request: Request, broker: Broker) -> Any:
    topics = request.entity.topics
    if [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in topics] != [
        (METADATA_TOPIC, [0])
    ]:
        unknown = tuple(_topic(request, topic, _unknown(request, topic)) for topic in topics)
        return respond(request, error_message="", topics=unknown)
    module = response_module(request)
    now_ms, end = broker.clock.now_ms(), broker.topics.generation
    voter = entity(
        module.ReplicaState,
        replica_id=broker.node_id,
        replica_directory_id=None,
        log_end_offset=end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    quorum = _partition(request, 0, ErrorCode.none, "", broker.node_id, _EPOCH, end, (voter,))
    topic = _topic(request, topics[0], (quorum,))
    return respond(request, error_message="", topics=(topic,), nodes=_nodes(request, broker))


def _unknown(request: Request, topic: Any) -> tuple[Any, ...]:
    code = ErrorCode.unknown_topic_or_partition
    return tuple(_partition(request, one.partition_index, code, NO_SUCH_TOPIC) for one in topic.partitions)


def _partition(
    request: Request,
    index: int,
    code: ErrorCode,
    what: str,
    leader: int = 0,
    epoch: int = 0,
    end: int = 0,
    voters: tuple[Any, ...] = (),
) -> Any:
    return entity(
        response_module(request).PartitionData,
        partition_index=index,
        error_code=code,
        error_message=what,
        leader_id=leader,
        leader_epoch=epoch,
        high_watermark=end,
        current_voters=voters,
        observers=(),
    )


def _topic(request: Request, topic: Any, partitions: tuple[Any, ...]) -> Any:
    return entity(response_module(request).TopicData, topic_name=topic.topic_name, partitions=partitions)


def _nodes(request: Request, broker: Broker) -> tuple[Any, ...]:
    module = response_module(request)
    if request.version < 2:
        return ()
    node = this_node(broker, request.connection)
    listener = entity(module.Listener, name=request.connection.listener, host=node.host, port=node.port)
    return (entity(module.Node, node_id=node.node_id, listeners=(listener,)),)
