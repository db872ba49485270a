"""The cluster of one broker.

60 DescribeCluster, versions 0 to 2. v1: endpoint type (KIP-919); v2: fenced brokers, of which there are none.

64 UnregisterBroker, version 0: there is no broker but this one, which is not to be forgotten while it answers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.responses import cluster_operations, this_node
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.metadata_response import OPERATIONS_NOT_ASKED_FOR
from kafkalog_broker.protocol.response_entity import entity, error_response, respond, response_module

BROKERS, CONTROLLERS = 1, 2  # endpoint types


@api(60, 0, 2)
async def describe_cluster(request: Request, broker: Broker) -> Any:
    asked = request.entity
    kind = getattr(asked, "endpoint_type", BROKERS)
    if kind == CONTROLLERS:
        # As a Kafka broker answers on a listener that is not a controller's.
        return error_response(
            request,
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if kind != BROKERS:
        return error_response(request, ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {kind}")
    module = response_module(request)
    node = this_node(broker, request.connection)
    return respond(
        request,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=(
            entity(
                module.DescribeClusterBroker,
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=False,
            ),
        ),
        cluster_authorized_operations=(
            cluster_operations(request) if asked.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED_FOR
        ),
    )


@api(64, 0, 0)
async def unregister_broker(request: Request, broker: Broker) -> Any:
    node_id = request.entity.broker_id
    if node_id == broker.node_id:
        return error_response(
            request, ErrorCode.invalid_request, f"Broker ID {node_id} is this broker, which is running"
        )
    return error_response(
        request, ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered"
    )
