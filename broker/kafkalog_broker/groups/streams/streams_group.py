"""A streams group and its members (Kafka's StreamsGroup and StreamsGroupMember)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.groups.modern.group_records import Endpoint, GroupRecord, GroupType, RecordKind, TaskRole, TasksKey
from kafkalog_broker.groups.modern.modern_group import (
    ModernGroup,
    ModernGroupState,
    ReconcilingMember,
    assignment_state,
)
from kafkalog_broker.groups.modern.stale_epoch import stale_member_epoch
from kafkalog_broker.groups.offset_requests import CommittedPartition
from kafkalog_broker.groups.streams.configured_topology import ConfiguredTopology
from kafkalog_broker.groups.streams.topology import Topology, build_topology

_FAILURES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StreamsMember(ReconcilingMember):
    """A member: one thread of the application. `process_id` identifies the instance that the thread belongs to."""

    previous_epoch: int = 0
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class CreationFailure(NamedTuple):
    """Reason for which an internal topic could not be created. Heartbeats report it until `reported_until_ms`."""

    reason: str
    reported_until_ms: int


class StreamsGroup(ModernGroup[StreamsMember]):
    """A group in which an active task has at most one owner, and a process has a task at most once."""

    group_type = GroupType.STREAMS

    def __init__(self, group_id: str) -> None:
        self._processes = _TaskProcesses()
        super().__init__(group_id, StreamsMember, self._processes)
        self.topology: Topology | None = None
        self.validated_topology_epoch = 0
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        # The following attributes are not in the log.
        self.configured: ConfiguredTopology | None = None
        """Configured at the first heartbeat, and again when the topics of the topology change."""
        self.shutdown_member_id: str | None = None  # member that has requested the shutdown of the application
        self.endpoint_epoch = 0  # raised when the tasks of members with endpoints may have changed
        self.creating: set[str] = set()  # internal topics that are being created
        self.failed_topics: dict[str, CreationFailure] = {}

    @property
    def state(self) -> ModernGroupState:
        is_ready = self.topology is not None and self.topology.epoch == self.validated_topology_epoch
        return assignment_state(self) if is_ready or not self.members else ModernGroupState.NOT_READY

    def replay(self, record: GroupRecord) -> None:
        if record.kind is RecordKind.TOPOLOGY:
            topology = record.value
            if topology is not None and not isinstance(topology, Topology):  # decoded from the log
                topology = build_topology(*topology)
            self.topology = topology
            return
        if record.kind is RecordKind.EPOCH:
            *_, self.validated_topology_epoch, configs = record.value
            self.assignment_configs = configs or ()
        super().replay(record)
        if not self.members:
            self.shutdown_member_id = None

    def is_free_for(self, member: StreamsMember, key: TasksKey, partition: int) -> bool:
        """Return whether a task can be assigned to a member.

        No member of its process may have the task in any role. An active task must have no owner at all.
        """
        if key.role is TaskRole.ACTIVE and self._processes.processes_of(key, partition):
            return False
        return all(
            member.process_id not in self._processes.processes_of(TasksKey(role, key.subtopology_id), partition)
            for role in TaskRole
        )

    def assignment_epoch_of(self, member: StreamsMember, partition: CommittedPartition) -> int:
        """Return the epoch in which a member was assigned the active task that reads a partition.

        Raises:
            BrokerError: See `stale_member_epoch`, if the member does not own the task.
        """
        subtopology_id = None if self.topology is None else self.topology.by_source.get(partition.topic)
        if subtopology_id is None:
            raise stale_member_epoch(member, f"Topic {partition.topic} is not in the topology.")
        key = TasksKey(TaskRole.ACTIVE, subtopology_id)
        for owned in (member.assigned, member.pending_revocation):
            if (epoch := owned.get(key, {}).get(partition.partition)) is not None:
                return epoch
        raise stale_member_epoch(
            member, f"Task {subtopology_id}-{partition.partition} is not assigned or pending revocation for member."
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.by_source

    def creation_failures(self, names: Iterable[str], now_ms: int) -> str:
        """Return a message about topics that could not be created recently, or "" if there are none."""
        failures = ((name, self.failed_topics.get(name)) for name in names)
        failed = [
            f"{name} ({failure.reason})"
            for name, failure in failures
            if failure is not None and now_ms < failure.reported_until_ms
        ]
        more = len(failed) - _FAILURES_SHOWN
        shown = ", ".join(failed[:_FAILURES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"; Creation failed: {shown}." if failed else ""


class _TaskProcesses:
    """Index from tasks to the processes that have them, or have not revoked them yet."""

    def __init__(self) -> None:
        self._processes: dict[TasksKey, dict[int, set[str]]] = {}

    def processes_of(self, key: TasksKey, partition: int) -> Collection[str]:
        return self._processes.get(key, {}).get(partition, ())

    def add(self, member: StreamsMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for key, partitions in owned.items():
                processes = self._processes.setdefault(key, {})
                for partition in partitions:
                    processes.setdefault(partition, set()).add(member.process_id)

    def discard(self, member: StreamsMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for key, partitions in owned.items():
                processes = self._processes.get(key, {})
                for partition in partitions:
                    if partition in processes:
                        processes[partition].discard(member.process_id)
                        if not processes[partition]:
                            del processes[partition]
                if not processes:
                    self._processes.pop(key, None)
