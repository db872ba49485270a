"""Request of StreamsGroupHeartbeat, and the checks that need no group (KafkaApis, GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.current_assignment import ReportedOwnership
from kafkalog_broker.groups.modern.group_records import Endpoint, TaskRole
from kafkalog_broker.groups.modern.heartbeat_checks import check_not_blank
from kafkalog_broker.groups.modern.modern_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from kafkalog_broker.groups.streams.topology import Topology

_ROLE_FIELDS = {
    TaskRole.ACTIVE: "ActiveTasks", TaskRole.STANDBY: "StandbyTasks", TaskRole.WARMUP: "WarmupTasks",
}  # fmt: skip


class StreamsHeartbeatRequest(NamedTuple):
    """Heartbeat of a member. A field that is None has not changed since the last heartbeat.

    Attributes:
        owned: Tasks that the member reports to own. None if one of the three task fields is null.
        sent_roles: Number of subtopologies listed under each role (active, standby, warm-up). A role whose field is
            null is missing.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    owned: ReportedOwnership | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    sent_roles: Mapping[TaskRole, int] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    endpoint_epoch: int = 0
    has_task_offsets: bool = False
    has_task_end_offsets: bool = False
    shutdown_application: bool = False


def check_request(request: StreamsHeartbeatRequest) -> None:
    """Check a request in Kafka's order.

    Raises:
        BrokerError: invalid_request or streams_invalid_topology if the request is not valid.
    """
    _check_supported(request)
    check_not_blank(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    epoch, sent_roles = request.member_epoch, request.sent_roles or {}
    if epoch == JOIN_GROUP_EPOCH:
        _check_join(request)
    _refuse_if(epoch == LEAVE_GROUP_STATIC_EPOCH, "InstanceId can't be null.")
    _refuse_if(epoch < LEAVE_GROUP_STATIC_EPOCH, f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    _refuse_if(0 < len(sent_roles) < len(TaskRole), "If one task-type is non-null, all must be non-null.")
    _refuse_if(
        epoch != JOIN_GROUP_EPOCH and request.topology is not None,
        "Topology can only be provided when (re-)joining.",
    )


def _check_supported(request: StreamsHeartbeatRequest) -> None:
    """Refuse what Kafka does not support either."""
    subtopologies = () if request.topology is None else request.topology.subtopologies
    has_warmup_tasks = bool(request.sent_roles and request.sent_roles.get(TaskRole.WARMUP))
    _refuse_if(request.instance_id is not None, "Static membership is not yet supported.")
    _refuse_if(request.has_task_offsets, "TaskOffsets are not supported yet.")
    _refuse_if(request.has_task_end_offsets, "TaskEndOffsets are not supported yet.")
    _refuse_if(has_warmup_tasks, "WarmupTasks are not supported yet.")
    _refuse_if(
        any(subtopology.source_topic_regex for subtopology in subtopologies),
        "Regular expressions for source topics are not supported yet.",
    )


def _check_join(request: StreamsHeartbeatRequest) -> None:
    _refuse_if(request.rebalance_timeout_ms is None, "RebalanceTimeoutMs must be provided in first request.")
    sent_roles = request.sent_roles or {}
    for role, field in _ROLE_FIELDS.items():
        _refuse_if(sent_roles.get(role) != 0, f"{field} must be empty when (re-)joining.")
    if request.topology is None:
        raise BrokerError(ErrorCode.invalid_request, "Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise BrokerError(
                    ErrorCode.streams_invalid_topology,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def _refuse_if(is_invalid: bool, message: str) -> None:
    if is_invalid:
        raise BrokerError(ErrorCode.invalid_request, message)
