"""The streams groups (KIP-1071) of one partition of __consumer_offsets (Kafka's GroupMetadataManager).

Beyond what groups have in common (group_manager.py, reconciling.py): the topology, which the first member brings and
whose topics have to be there before there is an assignment; the first assignment, which waits for more members; where
members can be asked for their state; and the end of the whole application, which any of them can ask for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import CommittedPartition
from kafkalog_broker.groups.consumer.reconciling import (
    ReconcilingGroup,
    ReconcilingGroupManager,
    ReconcilingMember,
    stale,
)
from kafkalog_broker.groups.modern.group_manager import (
    INLINE_COST,
    MEMBER_COSTS,
    GroupChanges,
    HeartbeatRequest,
    HeartbeatResponse,
    MemberResult,
    check_not_blank,
)
from kafkalog_broker.groups.modern.group_records import (
    GroupRecord,
    GroupType,
    Owned,
    Partitions,
    RecordKind,
    TaskRole,
    TasksKey,
)
from kafkalog_broker.groups.modern.group_settings import StreamsGroupSettings, standby_replicas, streams_group_settings
from kafkalog_broker.groups.modern.modern_group import LEAVING_STATIC, ModernGroupState
from kafkalog_broker.groups.streams.configured_topology import ConfiguredTopology, configure_topology
from kafkalog_broker.groups.streams.streams_group_status import Status, StatusCode
from kafkalog_broker.groups.streams.task_assignor import AssignedTasks, TaskCount, assign_sticky
from kafkalog_broker.groups.streams.topology import TopicInfo, Topology, topology_of

_FAILURES_SHOWN = 3

MOST_ENDPOINT_TOPICS = 10_000
"""Topics that the endpoints of an answer name, in one step of the event loop. Beyond it none are told: 200 members that
read 2,000 topics each would take a second with every heartbeat."""

Endpoint = tuple[str, int]  # host and port where a member can be asked for its state


def host_and_port(endpoint: Endpoint | None) -> dict[str, Any] | None:
    return None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]}


@dataclass(frozen=True, slots=True)
class StreamsMember(ReconcilingMember):
    """A member of a streams group, a thread of the application. process_id: of the instance that it is in."""

    previous_epoch: int = 0
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsGroup(ReconcilingGroup[StreamsMember]):
    """An active task has one owner at any time, and a process has a task once."""

    group_type = GroupType.STREAMS
    member_class = StreamsMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        self.topology: Topology | None = None
        self.configured: ConfiguredTopology | None = None
        """Not in the log: made from the topology at the first heartbeat, and when topics change."""
        self.shutdown_member_id: str | None = None  # who has asked for the end of the application
        self.endpoint_epoch = 0  # another number after any change of what members with endpoints have
        self.creating: set[str] = set()  # internal topics that are being made
        self.failed_topics: dict[str, tuple[str, int]] = {}
        """Why an internal topic could not be made, and the time in ms until which that is said."""
        self._processes: dict[TasksKey, dict[int, set[str]]] = {}
        """Processes that have a task, or are still to give it up."""

    @property
    def state(self) -> ModernGroupState:
        is_ready = self.topology is not None and self.topology.epoch == self.validated_topology_epoch
        return ModernGroupState.NOT_READY if self.members and not is_ready else super().state

    # ---- records

    def last_records(self) -> Iterable[tuple[RecordKind, str]]:
        return [(RecordKind.EPOCH, ""), (RecordKind.TOPOLOGY, "")]

    def replay(self, record: GroupRecord) -> None:
        if record.kind is RecordKind.TOPOLOGY:
            stated = record.value
            self.topology = stated if stated is None or isinstance(stated, Topology) else topology_of(*stated)
            return
        if record.kind is RecordKind.EPOCH:
            *_, self.validated_topology_epoch, configs = record.value
            self.assignment_configs = configs or ()
        super().replay(record)
        if not self.members:
            self.shutdown_member_id = None

    # ---- who has tasks

    def _count(self, member: StreamsMember, by: int) -> None:
        super()._count(member, by)
        for owned in (member.assigned, member.pending_revocation):
            for key, partitions in owned.items():
                holders = self._processes.setdefault(key, {})
                for partition in partitions:
                    if by > 0:
                        holders.setdefault(partition, set()).add(member.process_id)
                    elif partition in holders:
                        holders[partition].discard(member.process_id)
                        if not holders[partition]:
                            del holders[partition]
                if not holders:
                    del self._processes[key]

    def _holders(self, role: TaskRole, subtopology_id: str, partition: int) -> Collection[str]:
        return self._processes.get(TasksKey(role, subtopology_id), {}).get(partition, ())

    def is_free_for(self, member: StreamsMember, key: TasksKey, partition: int) -> bool:
        """True if a member's process has the task in no role and no other of its members; and an active one, nobody."""
        if key.role is TaskRole.ACTIVE and self._holders(*key, partition):
            return False
        return all(member.process_id not in self._holders(role, key.subtopology_id, partition) for role in TaskRole)

    # ---- topics

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.by_source

    def assigned_since(self, member: StreamsMember, partition: CommittedPartition) -> int:
        subtopology_id = None if self.topology is None else self.topology.by_source.get(partition.topic)
        if subtopology_id is None:
            raise stale(member, f"Topic {partition.topic} is not in the topology.")
        key = TasksKey(TaskRole.ACTIVE, subtopology_id)
        for owned in (member.assigned, member.pending_revocation):
            if (since := owned.get(key, {}).get(partition.partition)) is not None:
                return since
        raise stale(
            member, f"Task {subtopology_id}-{partition.partition} is not assigned or pending revocation for member."
        )

    def creation_failures(self, names: Iterable[str], now_ms: int) -> str:
        """Text about those of some topics that could not be made lately; empty if there are none."""
        known = ((name, self.failed_topics.get(name)) for name in names)
        failed = [f"{name} ({failure[0]})" for name, failure in known if failure is not None and now_ms < failure[1]]
        more = len(failed) - _FAILURES_SHOWN
        shown = ", ".join(failed[:_FAILURES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"; Creation failed: {shown}." if failed else ""

    def endpoint_topics(self) -> int:
        """Number of topics that `endpoints` names: the sources of each subtopology of which a member has tasks."""
        subtopologies = {} if self.configured is None else self.configured.subtopologies
        sources = {name: sum(1 for _ in each.subtopology.sources) for name, each in subtopologies.items()}
        members = (member for member in self.members.values() if member.user_endpoint is not None)
        return sum(sources.get(key.subtopology_id, 0) for member in members for key in member.assigned)

    def endpoints(self, updated: StreamsMember, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
        """EndpointToPartitions of all who have told one, the updated one last. counts: partitions of the sources."""
        members = {member_id: member for member_id, member in self.members.items() if member_id != updated.member_id}
        for member in (*members.values(), updated):
            if member.user_endpoint is not None:
                active, standby = (
                    self._partitions(member.assigned, role, counts) for role in (TaskRole.ACTIVE, TaskRole.STANDBY)
                )
                yield {
                    "user_endpoint": host_and_port(member.user_endpoint), "active_partitions": active,
                    "standby_partitions": standby,
                }  # fmt: skip

    def _partitions(self, assigned: Owned, role: TaskRole, counts: dict[str, int]) -> list[dict[str, Any]]:
        """Partitions that tasks read. Of a topic with fewer partitions than there are tasks here, Kafka names as many
        of the first tasks."""
        subtopologies = {} if self.configured is None else self.configured.subtopologies
        return [
            {"topic": topic, "partitions": tuple(sorted(partitions)[: counts.get(topic, 0)])}
            for key, partitions in assigned.items()
            if key.role is role and key.subtopology_id in subtopologies
            for topic in subtopologies[key.subtopology_id].subtopology.sources
        ]


log = logging.getLogger(__name__)

StreamsResult = MemberResult[StreamsGroup, StreamsMember]
_INITIAL_DELAY = "initial-delay"
_NOT_VALIDATED = -1
_STANDBY_COSTS = 4  # active tasks


@dataclass(slots=True)
class StreamsHeartbeatRequest(HeartbeatRequest):
    """owned: tasks by TasksKey; None: not all roles are said. stated_roles: those that are said."""

    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    stated_roles: Mapping[TaskRole, int] | None = None
    """How many subtopologies are named, of each role that is said."""
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    endpoint_epoch: int = 0
    has_task_offsets: bool = False
    has_task_end_offsets: bool = False
    shutdown_application: bool = False

    @property
    def topology_epoch(self) -> int | None:
        return None if self.topology is None else self.topology.epoch


@dataclass(slots=True)
class StreamsHeartbeatResponse(HeartbeatResponse):
    """missing_topics: internal ones that are to be made. endpoints: None where they are as in the last answer."""

    statuses: list[Status] = field(default_factory=list)
    missing_topics: Mapping[str, TopicInfo] | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[Mapping[str, Any]] | None = None


class StreamsGroupManager(ReconcilingGroupManager[StreamsGroup, StreamsMember]):
    group_class = StreamsGroup
    response_class = StreamsHeartbeatResponse

    def settings(self, group_id: str) -> StreamsGroupSettings:
        return streams_group_settings(self.context.config, self.context.overrides(group_id))

    def assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        """Settings that assignments depend on, as the group's record has it."""
        replicas = standby_replicas(self.context.config, self.context.overrides(group_id))
        return (("num.standby.replicas", str(replicas)),)

    # ---- heartbeats

    def check_request(self, request: StreamsHeartbeatRequest) -> None:
        subtopologies = () if request.topology is None else request.topology.subtopologies
        for is_used, what in (
            (request.instance_id is not None, "Static membership is not yet supported."),
            (request.has_task_offsets, "TaskOffsets are not supported yet."),
            (request.has_task_end_offsets, "TaskEndOffsets are not supported yet."),
            (bool((request.stated_roles or {}).get(TaskRole.WARMUP)), "WarmupTasks are not supported yet."),
            (
                any(each.source_topic_regex for each in subtopologies),
                "Regular expressions for source topics are not supported yet.",
            ),
        ):
            if is_used:
                raise BrokerError(ErrorCode.invalid_request, what)
        check_not_blank(((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")))
        epoch, invalid = request.member_epoch, None
        if epoch == 0:
            invalid = _invalid_first(request)
        elif epoch == LEAVING_STATIC:
            invalid = "InstanceId can't be null."
        elif epoch < LEAVING_STATIC:
            invalid = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
        if invalid is None and request.stated_roles and len(request.stated_roles) < len(TaskRole):
            invalid = "If one task-type is non-null, all must be non-null."
        if invalid is None and epoch != 0 and request.topology is not None:
            invalid = "Topology can only be provided when (re-)joining."
        if invalid is not None:
            raise BrokerError(ErrorCode.invalid_request, invalid)

    def check_room(self, group: StreamsGroup, member_id: str, max_size: int) -> None:
        """Whoever goes on has room; who joins does in `member_for`, known or not."""

    def member_for(self, result: StreamsResult, request: StreamsHeartbeatRequest) -> StreamsMember:
        group, joins, member_id = result.group, request.member_epoch == 0, request.member_id
        if joins:
            super().check_room(group, "", self.settings(group.group_id).max_size)
            return group.members.get(member_id) or StreamsMember(member_id)
        return self.checked(group.member(member_id), request)

    def next_epoch(self, result: StreamsResult, request: StreamsHeartbeatRequest) -> int:
        """It rises with the topology, its topics, what else the assignment depends on, and what members say."""
        group, updated = result.group, result.updated
        answer, topology = result.response, self._topology(result, group, request)
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            detail = (
                f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
                f"{group.topology.epoch}."
            )
            answer.statuses.append(Status(StatusCode.STALE_TOPOLOGY, detail))
        version = self.context.topics.generation
        metadata_hash, fitted = self._with_topics(group, topology)
        validated_epoch = _NOT_VALIDATED
        if fitted.problem is None:
            validated_epoch = topology.epoch
            fitted.check_tasks(request.owned or {})
        answer.missing_topics = fitted.missing
        state = metadata_hash, validated_epoch, self.assignment_configs(group.group_id)
        result.anew = updated is not result.member
        bump = result.anew or state != (
            group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
        )  # fmt: skip
        epoch = group.epoch + bump
        if bump:
            result.put(RecordKind.EPOCH, "", (epoch, *state))
            log.info("group %.200r: epoch %d", group.group_id, epoch)
        key, delay_ms = (_INITIAL_DELAY, group.group_id, ""), self.settings(group.group_id).initial_delay_ms
        if not group.members and delay_ms > 0 and not self.timer.is_scheduled(key):  # others may join meanwhile
            self.timer.schedule(key, delay_ms, lambda: self._first_assignment(group.group_id))

        def written() -> None:
            present = self.groups[group.group_id]  # of a new group another object, which its records have made
            present.configured, present.seen_topics_version = fitted, version

        result.then(written)
        return epoch

    def _topology(self, result: GroupChanges, group: StreamsGroup, request: StreamsHeartbeatRequest) -> Topology:
        """The group's, that of its first member if it has none. Raises BrokerError: INVALID_REQUEST; as Kafka,
        UNKNOWN_SERVER_ERROR for an epoch below 0."""
        stated = request.topology
        if stated is not None and stated.epoch < 0:
            raise BrokerError(ErrorCode.unknown_server_error)
        if group.topology is None:
            if stated is None:
                raise BrokerError(ErrorCode.invalid_request, f"Group {group.group_id} has no topology yet.")
            result.put(RecordKind.TOPOLOGY, "", stated)
            return stated
        if (
            stated is not None
            and stated.epoch >= group.topology.epoch
            and (stated.epoch > group.topology.epoch or stated.by_id != group.topology.by_id)
        ):
            raise BrokerError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
        return group.topology

    def _with_topics(self, group: StreamsGroup, topology: Topology) -> tuple[int, ConfiguredTopology]:
        """Hash of the topology's topics, and the topology with them. Raises BrokerError (STREAMS_INVALID_TOPOLOGY)."""
        is_new, fitted = group.topology is None, group.configured
        if fitted is not None and not is_new and group.seen_topics_version == self.context.topics.generation:
            return group.metadata_hash, fitted
        metadata_hash = self.context.metadata_hash(topology.required_topics)
        if fitted is None or is_new or metadata_hash != group.metadata_hash:
            fitted = group.configured = configure_topology(topology, self.partition_count)
        return metadata_hash, fitted

    def partition_count(self, name: str) -> int | None:
        topic = self.context.topics.get(name)
        return None if topic is None else topic.partitions

    def reconciled(self, result: StreamsResult, target_epoch: int, target: Partitions) -> StreamsMember:
        member = result.updated
        return result.group.stepped(member, target_epoch, target, result.reported, next_epoch=member.epoch + 1)

    def finish_heartbeat(self, result: StreamsResult, epoch: int, request: StreamsHeartbeatRequest) -> None:
        """Who asks for the end of the application, and where members can be asked for their state. Both are lost in the
        heartbeat that makes a group, as in Kafka."""
        group, member, updated, answer = result.group, result.member, result.updated, result.response
        if request.shutdown_application:
            self._shut_down(group, member.member_id)
        is_told = request.member_epoch == 0 or member.assigned != updated.assigned
        if is_told and updated.user_endpoint is not None:
            group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_epoch:
            topology = group.configured
            sources = () if topology is None else topology.subtopologies.values()
            names = {name for each in sources for name in each.subtopology.sources}
            counts = {name: self.partition_count(name) or 0 for name in names}
            if group.endpoint_topics() <= MOST_ENDPOINT_TOPICS:
                answer.endpoints = list(group.endpoints(updated, counts))
        if group.group_id in self.groups:
            answer.endpoint_epoch = group.endpoint_epoch
        if group.configured is not None and group.configured.problem is not None:
            answer.statuses.append(group.configured.problem)
        if group.shutdown_member_id is not None:
            detail = (
                f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown "
                "for the entire application."
            )
            answer.statuses.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))

    # ---- target assignments

    def target(
        self, result: GroupChanges, group: StreamsGroup, epoch: int, updated: StreamsMember
    ) -> tuple[int, Partitions]:
        if self.timer.is_scheduled((_INITIAL_DELAY, group.group_id, "")):
            self.assignment_waits(result, "initial rebalance delay")
            return group.assignment_epoch, {}
        return super().target(result, group, epoch, updated)

    def assignment_waits(self, result: GroupChanges, why: str) -> None:
        detail = f"Assignment delayed due to the configured {why}."
        result.response.statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))

    def takes_long(self, group: StreamsGroup, updated: StreamsMember) -> bool:
        subtopologies = {} if group.configured is None else group.configured.subtopologies
        tasks = sum(each.tasks for each in subtopologies.values())
        replicas = self.settings(group.group_id).standby_replicas
        return MEMBER_COSTS * len(group.members) + tasks * (1 + _STANDBY_COSTS * replicas) > INLINE_COST

    def assign(self, group: StreamsGroup, members: Mapping[str, StreamsMember]) -> dict[str, Partitions]:
        fitted = group.configured
        if fitted is None or fitted.problem is not None:
            return {}
        specs = {
            member_id: AssignedTasks(member.process_id, group.target.get(member_id, {}))
            for member_id, member in members.items()
        }
        counts = {
            name: TaskCount(each.tasks, bool(each.subtopology.state_changelog_topics))
            for name, each in fitted.subtopologies.items()
        }
        return assign_sticky(specs, counts, self.settings(group.group_id).standby_replicas)

    def _first_assignment(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or not group.members or group.configured is None:
            return  # the next heartbeat makes it
        result = GroupChanges(group.group_type, group_id, StreamsHeartbeatResponse())
        self.target(result, group, group.epoch, next(iter(group.members.values())))
        self.commit(result)

    def forget(self, group: StreamsGroup) -> None:
        super().forget(group)
        self.timer.cancel((_INITIAL_DELAY, group.group_id, ""))

    # ---- members that leave

    def leave(self, request: Any) -> HeartbeatResponse:
        if request.shutdown_application:
            self._shut_down(self.group(request.group_id), request.member_id)
        return super().leave(request)

    def _shut_down(self, group: StreamsGroup, member_id: str) -> None:
        if group.shutdown_member_id is None:
            log.info("group %.200r: member %.200r asks for the end of the application", group.group_id, member_id)
            group.shutdown_member_id = member_id

    def put_removal(self, result: GroupChanges, group: StreamsGroup, members: Sequence[StreamsMember]) -> None:
        for member in members:
            result.remove_member(member.member_id)
        state = group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
        result.put(RecordKind.EPOCH, "", (group.epoch + 1, *state))


def _invalid_first(request: StreamsHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms is None:
        return "RebalanceTimeoutMs must be provided in first request."
    stated = request.stated_roles or {}
    for role, name in zip(TaskRole, ("ActiveTasks", "StandbyTasks", "WarmupTasks"), strict=True):
        if stated.get(role) != 0:
            return f"{name} must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    for topic in (topic for each in request.topology.subtopologies for topic in each.state_changelog_topics):
        if topic.partitions:
            raise BrokerError(
                ErrorCode.streams_invalid_topology,
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                f"{topic.partitions}.",
            )
    return None
