"""A streams group in memory (Kafka's StreamsGroup)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.groups.classic.messages import CommittedPartition
from kafkalog_broker.groups.consumer.reconciling import ReconcilingGroup, ReconcilingMember, stale
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType, Owned, RecordKind, TaskRole, TasksKey
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.groups.streams.topology import ConfiguredTopology, Topology, topology_of

_FAILURES_SHOWN = 3

Endpoint = tuple[str, int]  # host and port where a member can be asked for its state


@dataclass(frozen=True, slots=True)
class StreamsMember(ReconcilingMember):
    """A member of a streams group, a thread of the application. process_id: of the instance that it is in."""

    previous_epoch: int = 0
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class EndpointPartitions(NamedTuple):
    """Partitions of a member, as (topic, partitions)."""

    endpoint: Endpoint
    active: list[tuple[str, list[int]]]
    standby: list[tuple[str, list[int]]]


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
            self.topology = stated if stated is None or isinstance(stated, Topology) else topology_of(stated)
            return
        if record.kind is RecordKind.EPOCH:
            self.validated_topology_epoch = record.value.validated_topology_epoch
            self.assignment_configs = record.value.assignment_configs
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

    def endpoints(self, updated: StreamsMember, counts: dict[str, int]) -> Iterator[EndpointPartitions]:
        """Endpoints of all members that have told one, the updated one the last. counts: partitions of the sources."""
        members = {member_id: member for member_id, member in self.members.items() if member_id != updated.member_id}
        for member in (*members.values(), updated):
            if member.user_endpoint is not None:
                yield EndpointPartitions(
                    member.user_endpoint, self._partitions(member.assigned, TaskRole.ACTIVE, counts),
                    self._partitions(member.assigned, TaskRole.STANDBY, counts),
                )  # fmt: skip

    def _partitions(self, assigned: Owned, role: TaskRole, counts: dict[str, int]) -> list[tuple[str, list[int]]]:
        """Partitions that tasks read. Of a topic with fewer partitions than there are tasks here, Kafka names as many
        of the first tasks."""
        subtopologies = {} if self.configured is None else self.configured.subtopologies
        return [
            (topic, sorted(partitions)[: counts.get(topic, 0)])
            for key, partitions in assigned.items()
            if key.role is role and key.subtopology_id in subtopologies
            for topic in subtopologies[key.subtopology_id].subtopology.sources
        ]
