"""This node, and the authorized operations on the cluster, as several APIs report them."""

from __future__ import annotations

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.metadata_messages import NodeEndpoint
from kafkalog_broker.protocol.request import Request


def this_node(broker: Broker, connection: ConnectionInfo) -> NodeEndpoint:
    """Return this node with the address that is advertised for the listener of `connection`."""
    advertised = broker.advertised
    listener = next((entry for entry in advertised if entry.name == connection.listener), advertised[0])
    return NodeEndpoint(broker.node_id, listener.host, listener.port, broker.config.broker_rack)


def authorized_cluster_operations(request: Request) -> int:
    """Return the operations on the cluster that the sender may perform, as a bit field (KIP-430).

    It is 0 if the sender may not describe the cluster.
    """
    if not request.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return request.operations(ResourceType.CLUSTER, CLUSTER_NAME)
