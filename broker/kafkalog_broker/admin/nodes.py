"""This node as clients see it, and what everybody may do while there is no access control."""

from __future__ import annotations

from kafkalog_broker.broker import Broker
from kafkalog_broker.protocol.api_registry import ConnectionInfo
from kafkalog_broker.protocol.node_endpoints import NodeEndpoint

# Bit n: AclOperation n (READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
# DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12). All that a resource has, as without an authorizer.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def this_node(broker: Broker, connection: ConnectionInfo) -> NodeEndpoint:
    """Node id and the address that clients of that connection's listener get."""
    known = broker.advertised
    listener = next((entry for entry in known if entry.name == connection.listener), known[0])
    return NodeEndpoint(broker.node_id, listener.host, listener.port, broker.config.broker_rack)
