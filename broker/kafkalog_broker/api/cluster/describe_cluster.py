"""60 DescribeCluster, versions 0 to 2: the cluster and its one node.

v1  endpoint type (KIP-919)
v2  fenced brokers, of which there are none
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.cluster.cluster_description import authorized_cluster_operations, this_node
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response

_BROKERS, _CONTROLLERS = 1, 2  # endpoint types


@api(60, 0, 2)
def describe_cluster(request: Request, broker: Broker) -> Any:
    endpoint_type = request.entity.endpoint_type
    if endpoint_type == _CONTROLLERS:  # Kafka's error on a listener that does not belong to a controller
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return error_response(request, ErrorCode.mismatched_endpoint_type, message)
    if endpoint_type != _BROKERS:
        message = f"Unsupported endpoint type {endpoint_type}"
        return error_response(request, ErrorCode.unsupported_endpoint_type, message)
    node = this_node(broker, request.connection)
    operations = {}
    if request.entity.include_cluster_authorized_operations:
        operations["cluster_authorized_operations"] = authorized_cluster_operations(request)
    return build_response(
        request, endpoint_type=_BROKERS, cluster_id=broker.cluster_id, controller_id=broker.node_id,
        brokers=[{"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}],
        **operations,
    )  # fmt: skip
