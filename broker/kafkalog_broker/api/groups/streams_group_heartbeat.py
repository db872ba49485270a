"""88 StreamsGroupHeartbeat, version 0: a member of a Kafka Streams application joins, stays or leaves (KIP-1071).

The response has the tasks that the member owns, and the problems that keep the application from running. Missing
internal topics are created before the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_broker.admin.streams_internal_topics import create_internal_topics
from kafkalog_broker.api.groups.modern_heartbeat_request import changed_timeout_ms, check_subscribed_topics
from kafkalog_broker.api.groups.streams_group_structs import TASK_FIELDS, task_fields, topic_names, topology_of_request
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import Endpoint, TaskRole, TasksKey
from kafkalog_broker.groups.streams.streams_group_heartbeat import StreamsHeartbeatResponse
from kafkalog_broker.groups.streams.streams_group_status import StatusCode
from kafkalog_broker.groups.streams.streams_heartbeat_request import StreamsHeartbeatRequest
from kafkalog_broker.groups.streams.topology import TopicInfo, Topology
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_spark.format.names import is_internal, valid_topic_name

_PARTITIONS_BY_ENDPOINT = "partitions_by_user_endpoint"
_UNCHANGED = dict.fromkeys((*TASK_FIELDS.values(), _PARTITIONS_BY_ENDPOINT))
"""Null in these fields means that tasks and endpoints are those of the last response."""


@api(88, 0, 0)
def streams_group_heartbeat(request: Request, broker: Broker) -> Any:
    body = request.entity
    try:
        topology = None if body.topology is None else topology_of_request(body.topology)
        if topology is not None:
            _check_topic_names(request, topology)
        result = broker.groups.streams_group_heartbeat(_heartbeat(request, topology))
    except BrokerError as error:
        return build_response(request, error_code=error.code, error_message=error.message, **_UNCHANGED)
    if result.missing_topics:
        return _create_topics_and_respond(request, broker, result, result.missing_topics)
    return _response(request, result)


def _check_topic_names(request: Request, topology: Topology) -> None:
    """Raise BrokerError for topics that the application or this client may not use."""
    names = topic_names(topology.subtopologies)
    if prohibited := [name for name in names if is_internal(name)]:
        raise BrokerError(
            ErrorCode.streams_invalid_topology,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    if invalid := [name for name in names if not valid_topic_name(name)]:
        raise BrokerError(
            ErrorCode.streams_invalid_topology, f"Topic names {','.join(invalid)} are not valid topic names."
        )
    check_subscribed_topics(request, names)


def _heartbeat(request: Request, topology: Topology | None) -> StreamsHeartbeatRequest:
    body = request.entity
    sent = {role: tasks for role, field in TASK_FIELDS.items() if (tasks := getattr(body, field)) is not None}
    owned = None  # unless the tasks of all roles are sent
    if len(sent) == len(TaskRole):
        owned = {TasksKey(role, task.subtopology_id): task.partitions for role, tasks in sent.items() for task in tasks}
    endpoint, tags = body.user_endpoint, body.client_tags
    return StreamsHeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        owned=owned,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        rebalance_timeout_ms=changed_timeout_ms(body.rebalance_timeout),
        topology=topology,
        sent_roles={role: len(tasks) for role, tasks in sent.items()},
        process_id=body.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
        endpoint_epoch=body.endpoint_information_epoch,
        has_task_offsets=body.task_offsets is not None,
        has_task_end_offsets=body.task_end_offsets is not None,
        shutdown_application=body.shutdown_application,
    )


async def _create_topics_and_respond(
    request: Request, broker: Broker, result: StreamsHeartbeatResponse, missing: Mapping[str, TopicInfo]
) -> Any:
    """Create missing internal topics, and add to the response why earlier attempts failed."""
    denied = []
    if not request.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        denied = [name for name in missing if not request.may(Operation.CREATE, ResourceType.TOPIC, name)]
    if denied:
        return _response(request, result, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
    group = broker.groups.streams_groups(request.entity.group_id).groups.get(request.entity.group_id)
    if group is None:
        return _response(request, result)
    failures = group.creation_failures(missing, broker.clock.now_ms())
    await create_internal_topics(broker, group, missing, request.charge, 2 * result.interval_ms)
    return _response(request, result, failures)


def _response(request: Request, result: StreamsHeartbeatResponse, creation_failures: str = "") -> Any:
    """Return the response. `creation_failures` is added to the status MISSING_INTERNAL_TOPICS."""
    statuses = [
        {"status_code": int(code),
         "status_detail": detail + (creation_failures if code is StatusCode.MISSING_INTERNAL_TOPICS else "")}
        for code, detail in result.statuses
    ]  # fmt: skip
    changed: dict[str, Any] = dict(_UNCHANGED)
    if result.assignment is not None:
        changed |= task_fields(result.assignment)
    if result.endpoints is not None:
        changed[_PARTITIONS_BY_ENDPOINT] = result.endpoints
    return build_response(
        request, member_id=result.member_id, member_epoch=result.member_epoch,
        heartbeat_interval=result.interval_ms, status=statuses,
        endpoint_information_epoch=result.endpoint_epoch, **changed,
    )  # fmt: skip
