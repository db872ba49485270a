"""StreamsGroupHeartbeat (KIP-1071): a member joins, stays or leaves (GroupMetadataManager.streamsGroupHeartbeat).

The first member sends the topology. Tasks are assigned when all topics of the topology exist, but not before
group.streams.initial.rebalance.delay.ms have passed, in which further members can join.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import ClassicGroupState
from kafkalog_broker.groups.modern.current_assignment import next_assignment
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupType, Partitions
from kafkalog_broker.groups.modern.group_settings import standby_replicas
from kafkalog_broker.groups.modern.heartbeat_checks import (
    check_capacity,
    check_reconciling_member_epoch,
)
from kafkalog_broker.groups.modern.heartbeat_response import assignment_in_response
from kafkalog_broker.groups.modern.member_timers import schedule_rebalance_timeout, schedule_session_timeout
from kafkalog_broker.groups.modern.modern_group import (
    JOIN_GROUP_EPOCH,
    LEAVE_GROUP_EPOCH,
    LEAVE_GROUP_STATIC_EPOCH,
    with_reported_fields,
)
from kafkalog_broker.groups.modern.modern_groups import new_group_replacing_classic
from kafkalog_broker.groups.streams.configured_topology import ConfiguredTopology, configure_topology
from kafkalog_broker.groups.streams.initial_rebalance import (
    put_streams_target_assignment,
    schedule_initial_rebalance,
)
from kafkalog_broker.groups.streams.streams_endpoints import endpoints
from kafkalog_broker.groups.streams.streams_group import StreamsGroup, StreamsMember
from kafkalog_broker.groups.streams.streams_group_members import StreamsGroups, put_removal
from kafkalog_broker.groups.streams.streams_group_status import Status, StatusCode
from kafkalog_broker.groups.streams.streams_heartbeat_request import StreamsHeartbeatRequest, check_request
from kafkalog_broker.groups.streams.topology import TopicInfo, Topology

_log = logging.getLogger(__name__)

_NOT_VALIDATED = -1  # validated_epoch of a group whose topology lacks topics


class StreamsHeartbeatResponse(NamedTuple):
    """Response to a heartbeat.

    Attributes:
        interval_ms: Time until the next heartbeat.
        assignment: Tasks of the member; None if they have not changed.
        missing_topics: Internal topics that have to be created.
        endpoints: None if they are the same as in the last response.
    """

    member_id: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None
    statuses: Sequence[Status] = ()
    missing_topics: Mapping[str, TopicInfo] | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[Mapping[str, Any]] | None = None


def streams_group_heartbeat(
    groups: StreamsGroups, request: StreamsHeartbeatRequest
) -> GroupResult[StreamsHeartbeatResponse]:
    """Process a heartbeat.

    Raises:
        BrokerError: invalid_request, streams_invalid_topology, group_id_not_found, group_max_size_reached,
            unknown_member_id, fenced_member_epoch; unknown_server_error where Kafka throws an unexpected exception (a
            topology epoch below 0).
    """
    check_request(request)
    if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
        return _leave(groups, request)
    is_joining = request.member_epoch == JOIN_GROUP_EPOCH
    changes = GroupChanges(GroupType.STREAMS, request.group_id)
    settings = groups.context.streams_settings(request.group_id)
    statuses: list[Status] = []

    # 1. Get or create the group and the member.
    group = _group(groups, changes, is_joining=is_joining)
    if is_joining:
        check_capacity(group, settings.max_size)
        member = group.members.get(request.member_id) or StreamsMember(request.member_id)
    else:
        member = group.member(request.member_id)
        check_reconciling_member_epoch(GroupType.STREAMS, member, request.member_epoch, request.owned)

    # 2. Update the member.
    updated = with_reported_fields(
        member, instance_id=request.instance_id, rack_id=request.rack_id, client_id=request.client_id,
        client_host=request.client_host, rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology_epoch=None if request.topology is None else request.topology.epoch, process_id=request.process_id,
        user_endpoint=request.user_endpoint, client_tags=request.client_tags,
    )  # fmt: skip
    is_changed = updated is not member
    if is_changed:
        changes.put_member(updated)

    # 3. Initialize the topology, and configure it with the topics that exist.
    topology = _topology(changes, group, request.topology)
    if group.topology is not None and updated.topology_epoch < group.topology.epoch:
        statuses.append(_stale_topology_status(updated, group.topology))
    topics_generation = groups.context.topics.generation
    metadata_hash, configured = _configured_topology(groups.context, group, topology)
    validated_epoch = _NOT_VALIDATED
    if configured.problem is None:
        validated_epoch = topology.epoch
        configured.check_tasks(request.owned or {})
    changes.on_commit(partial(_keep_configured_topology, groups, group.group_id, configured, topics_generation))

    # 4. Raise the group epoch if the member, the topics or the assignment configurations have changed.
    configs = assignment_configs(groups.context, group.group_id)
    epoch = group.epoch
    if is_changed or (metadata_hash, validated_epoch, configs) != (
        group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
    ):  # fmt: skip
        epoch += 1
        changes.put_streams_epoch(epoch, metadata_hash, validated_epoch, configs)
        _log.info("group %.200r: epoch %d", group.group_id, epoch)

    # 5. Compute the target assignment of the group epoch, if it is due.
    if not group.members:
        schedule_initial_rebalance(groups, group.group_id, settings.initial_delay_ms)
    target = put_streams_target_assignment(groups, changes, group, settings, epoch, updated)
    if target.delayed_by is not None:
        detail = f"Assignment delayed due to the configured {target.delayed_by}."
        statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))

    # 6. Reconcile the member with the target assignment.
    reconciled = updated
    if is_changed or not updated.is_reconciled_to(target.epoch):
        reconciled = next_assignment(
            GroupType.STREAMS, updated, target.epoch, target.partitions, request.owned,
            is_free=partial(group.is_free_for, updated), next_revocation_epoch=updated.epoch + 1,
        )  # fmt: skip
        if reconciled != updated:
            changes.put_current_assignment(reconciled)
            changes.on_commit(lambda: schedule_rebalance_timeout(groups, group.group_id, reconciled))

    # 7. Report endpoints, problems of the topology and a shutdown request. As in Kafka, a heartbeat that creates the
    # group has no effect on its shutdown request and endpoint epoch: `group` is a temporary object then, and the replay
    # of the records creates the real one.
    if request.shutdown_application:
        _request_shutdown(group, member.member_id)
    assignment_changed = is_joining or member.assigned != reconciled.assigned
    if assignment_changed and reconciled.user_endpoint is not None:
        group.endpoint_epoch += 1
    endpoints_changed = group.endpoint_epoch != request.endpoint_epoch
    if group.configured is not None and group.configured.problem is not None:
        statuses.append(group.configured.problem)
    if group.shutdown_member_id is not None:
        statuses.append(_shutdown_status(group.shutdown_member_id))

    changes.on_commit(
        lambda: schedule_session_timeout(groups, group.group_id, reconciled.member_id, settings.session_timeout_ms)
    )
    return changes.result(
        StreamsHeartbeatResponse(
            reconciled.member_id,
            reconciled.epoch,
            settings.heartbeat_interval_ms,
            assignment_in_response(reconciled.assigned) if assignment_changed else None,
            statuses,
            configured.missing_topics,
            group.endpoint_epoch if group.group_id in groups.groups else 0,
            endpoints(groups.context, group, reconciled) if endpoints_changed else None,
        )
    )


def assignment_configs(context: GroupContext, group_id: str) -> tuple[tuple[str, str], ...]:
    """Return the configurations that the assignor uses, as the group metadata record stores them."""
    replicas = standby_replicas(context.config, context.overrides(group_id))
    return (("num.standby.replicas", str(replicas)),)


def _group(groups: StreamsGroups, changes: GroupChanges, *, is_joining: bool) -> StreamsGroup:
    """Return the group. A member that joins creates it, or replaces an empty classic group."""
    group_id = changes.group_id
    classic = groups.classic.groups.get(group_id)
    if (
        is_joining
        and classic is not None
        and classic.state is ClassicGroupState.EMPTY
        and group_id not in groups.groups
    ):
        return new_group_replacing_classic(groups, changes)
    return groups.group_for_heartbeat(group_id, is_joining=is_joining)


def _topology(changes: GroupChanges, group: StreamsGroup, requested: Topology | None) -> Topology:
    """Return the topology of the group. The first member sets it.

    Raises:
        BrokerError: invalid_request, or unknown_server_error for an epoch below 0, as in Kafka.
    """
    if requested is not None and requested.epoch < 0:
        raise BrokerError(ErrorCode.unknown_server_error)
    if group.topology is None:
        if requested is None:
            raise BrokerError(ErrorCode.invalid_request, f"Group {group.group_id} has no topology yet.")
        changes.put_topology(requested)
        return requested
    if (
        requested is not None
        and requested.epoch >= group.topology.epoch
        and (requested.epoch > group.topology.epoch or requested.by_id != group.topology.by_id)
    ):
        raise BrokerError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
    return group.topology


def _stale_topology_status(member: StreamsMember, topology: Topology) -> Status:
    return Status(
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}.",
    )


class _HashedTopology(NamedTuple):
    """A topology, with the hash of the topics with which it was configured."""

    metadata_hash: int
    topology: ConfiguredTopology


def _configured_topology(context: GroupContext, group: StreamsGroup, topology: Topology) -> _HashedTopology:
    """Return the hash of the topology's topics, and the topology configured with them.

    Raises:
        BrokerError: streams_invalid_topology.
    """
    is_new, configured = group.topology is None, group.configured
    if configured is not None and not is_new and group.hashed_topics_generation == context.topics.generation:
        return _HashedTopology(group.metadata_hash, configured)
    metadata_hash = context.metadata_hash(topology.required_topics)
    if configured is None or is_new or metadata_hash != group.metadata_hash:
        configured = group.configured = configure_topology(topology, context.partition_count)
    return _HashedTopology(metadata_hash, configured)


def _keep_configured_topology(
    groups: StreamsGroups, group_id: str, configured: ConfiguredTopology, topics_generation: int
) -> None:
    group = groups.groups[group_id]  # not the group of the heartbeat if the replay has just created it
    group.configured, group.hashed_topics_generation = configured, topics_generation


def _request_shutdown(group: StreamsGroup, member_id: str) -> None:
    if group.shutdown_member_id is None:
        _log.info("group %.200r: member %.200r requested a shutdown of the application", group.group_id, member_id)
        group.shutdown_member_id = member_id


def _shutdown_status(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )


def _leave(groups: StreamsGroups, request: StreamsHeartbeatRequest) -> GroupResult[StreamsHeartbeatResponse]:
    group = groups.group(request.group_id)
    if request.shutdown_application:
        _request_shutdown(group, request.member_id)
    changes = GroupChanges(GroupType.STREAMS, group.group_id)
    put_removal(groups, changes, group, group.member(request.member_id))
    return changes.result(StreamsHeartbeatResponse(request.member_id, request.member_epoch))
