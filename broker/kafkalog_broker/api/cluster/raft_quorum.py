"""The quorum of controllers, of which this node is the only voter.

55 DescribeQuorum, versions 0 to 2. There is no metadata log. Its end and its high watermark are reported as the
generation of the topic registry, which grows with each change as the metadata log does.
v1  times of the last fetch (KIP-836)
v2  directory IDs, listeners of the voters, error messages (KIP-853)

80 AddRaftVoter, versions 0 and 1, and 81 RemoveRaftVoter, version 0: refused, as in a Kafka cluster with
kraft.version 0, whose voters are fixed by its configuration.
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.cluster.cluster_description import this_node
from kafkalog_broker.api.error_messages import UNKNOWN_TOPIC_OR_PARTITION
from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC

_ADD_RAFT_VOTER, _REMOVE_RAFT_VOTER = 80, 81
_LEADER_EPOCH = 1
"""Epoch of the leader. It stays the same because there is never a second election."""


@api(55, 0, 2)
async def describe_quorum(request: Request, broker: Broker) -> Any:
    partitions = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.entity.topics
    ]
    if partitions != [(CLUSTER_METADATA_TOPIC, [0])]:
        error = {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": UNKNOWN_TOPIC_OR_PARTITION}
        return await respond_by_partition(request, lambda topic, partition: error, error_message="")
    now_ms = broker.clock.now_ms()
    end_offset = broker.topics.generation
    voter = {
        "replica_id": broker.node_id, "log_end_offset": end_offset, "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }  # fmt: skip
    partition = {
        "partition_index": 0, "error_message": "", "leader_id": broker.node_id, "leader_epoch": _LEADER_EPOCH,
        "high_watermark": end_offset, "current_voters": [voter],
    }  # fmt: skip
    node = this_node(broker, request.connection)
    listener = {"name": request.connection.listener, "host": node.host, "port": node.port}
    return build_response(
        request, error_message="", topics=[{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
        nodes=[{"node_id": node.node_id, "listeners": [listener]}],
    )  # fmt: skip


@api(_ADD_RAFT_VOTER, 0, 1)
@api(_REMOVE_RAFT_VOTER, 0, 0)
def change_raft_voters(request: Request, broker: Broker) -> Any:
    change = "adding" if request.api_key == _ADD_RAFT_VOTER else "removing"
    message = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
    return error_response(request, ErrorCode.unsupported_version, message)
