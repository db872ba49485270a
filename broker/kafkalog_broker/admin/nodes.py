"""This node and the cluster as clients see them."""

from __future__ import annotations

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Request
from kafkalog_broker.protocol.metadata_response import NodeEndpoint


def cluster_operations(request: Request) -> int:
    """Operations that the sender may do with the cluster, as bits; 0 if it may not describe it."""
    if not request.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return request.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def this_node(broker: Broker, connection: ConnectionInfo) -> NodeEndpoint:
    """Node id and the address that clients of that connection's listener get."""
    known = broker.advertised
    listener = next((entry for entry in known if entry.name == connection.listener), known[0])
    return NodeEndpoint(broker.node_id, listener.host, listener.port, broker.config.broker_rack)
