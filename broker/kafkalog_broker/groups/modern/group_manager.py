"""Base of the managers of the consumer, share and streams groups of a partition of __consumer_offsets
(GroupMetadataManager).

A heartbeat raises the group's epoch where subscriptions or their topics have changed, makes the target assignment of
that epoch where it is due, and brings its member a step further towards it. What changes is a list of records, which
are appended as one batch and then replayed; a start replays the same records from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_timer import Commit, CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_assignors import CONSUMER_ASSIGNORS
from kafkalog_broker.groups.modern.group_context import MAX_SUBSCRIBED_TOPICS, GroupContext
from kafkalog_broker.groups.modern.group_records import (
    CURRENT_FIELDS,
    MEMBER_FIELDS,
    GroupRecord,
    GroupType,
    Partitions,
    RecordKind,
)
from kafkalog_broker.groups.modern.group_settings import GroupSettings
from kafkalog_broker.groups.modern.group_spec import AssignedMember, Assignments, GroupSpec
from kafkalog_broker.groups.modern.modern_group import LEAVING, LEAVING_STATIC, M, ModernGroup, ModernMember, values_of
from kafkalog_broker.groups.modern.simple_assignor import assign_simple

log = logging.getLogger(__name__)

Reported = Mapping[Any, Collection[int]]
"""The partitions, or tasks, that a member says it has, as in Partitions."""

TypeOf = Callable[[str], GroupType | None]
"""The type that a group of the same partition has; None: there is none of that id."""

MEMBER_COSTS = 10  # partitions
INLINE_COST = 3_000
"""Partitions, and members counted as ten, that are assigned in some 3 ms; more are assigned in the background."""
_TIMERS = ("session", "rebalance", "join-again", "sync-again")


@dataclass(slots=True)
class HeartbeatRequest:
    """Heartbeat of a member; None: as in the last one. Fields a member states are named as in its record."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    topics: Collection[str] | None = None
    owned: Reported | None = None
    client_id: str = ""
    client_host: str = ""

    def __post_init__(self) -> None:
        self.topics = None if self.topics is None else frozenset(self.topics)

    @property
    def is_full(self) -> bool:
        """Everything is said, as when joining or after an error: it is answered with the assignment."""
        return self.topics is not None


@dataclass(slots=True)
class HeartbeatResponse:
    """interval_ms: until the next heartbeat. assignment: None where it has not changed."""

    member_id: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None


class GroupChanges:
    """Records of one request (also of classic groups), calls once they are in the log, a heartbeat's response."""

    def __init__(self, group_type: GroupType, group_id: str, response: HeartbeatResponse | None = None) -> None:
        self.group_type, self.group_id = group_type, group_id
        self.response: Any = response
        self.records: list[GroupRecord | Record] = []
        self.afterwards: list[Callable[[], None]] = []

    def put(self, kind: RecordKind, name: str, value: object) -> None:
        """value: None for a tombstone."""
        self.records.append(GroupRecord(self.group_type, kind, self.group_id, name, value))

    def put_member(self, member: ModernMember) -> None:
        self.put(RecordKind.MEMBER, member.member_id, values_of(member, MEMBER_FIELDS[self.group_type]))

    def put_current(self, member: ModernMember) -> None:
        self.put(RecordKind.CURRENT, member.member_id, values_of(member, CURRENT_FIELDS[self.group_type]))

    def remove_member(self, member_id: str) -> None:
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self.put(kind, member_id, None)

    def then(self, call: Callable[[], None]) -> None:
        self.afterwards.append(call)


G = TypeVar("G", bound=ModernGroup[Any])


class MemberResult(GroupChanges, Generic[G, M]):
    """Result of a member's request. group, member: as they were, new ones included; updated: the member as it becomes.
    anew: it is reconciled in whatever epoch it is in. reported: what it says it has."""

    group: G
    member: M
    updated: M
    anew = False
    reported: Reported | None = None


class ModernGroupManager(Generic[G, M]):
    """Not thread-safe. The types of groups differ in what is abstract here, and in their assignors."""

    group_class: type[G]
    response_class: type[HeartbeatResponse] = HeartbeatResponse

    def __init__(self, context: GroupContext, timer: CoordinatorTimer, commit: Commit, type_of: TypeOf) -> None:
        self.groups: dict[str, G] = {}
        self.type_of = type_of
        self.context = context
        self.timer = timer
        self._commit = commit

    # ---- what types of groups differ in

    def settings(self, group_id: str) -> GroupSettings:
        raise NotImplementedError

    def check_request(self, request: Any) -> None:
        """Raises BrokerError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR. Whatever the group is."""
        raise NotImplementedError

    def group_for(self, result: GroupChanges, *, joins: bool) -> G:
        """The group of a heartbeat, a new one included. Raises BrokerError (GROUP_ID_NOT_FOUND)."""
        group_id = result.group_id
        group = self.groups.get(group_id)
        if group is not None:
            return group
        self.check_type(group_id)
        if not joins:
            kind = self.group_class.group_type.value.capitalize()
            raise BrokerError(ErrorCode.group_id_not_found, f"{kind} group {group_id} not found.")
        return self.group_class(group_id)

    def member_for(self, result: MemberResult[G, M], request: Any) -> M:
        """The member as it was, a new one before it has said anything. Raises BrokerError."""
        raise NotImplementedError

    def updated_member(self, member: M, request: Any) -> M:
        """With what it states; the member itself where nothing of that is new, as in nearly every heartbeat."""
        stated = {name: getattr(request, name, None) for name in MEMBER_FIELDS[self.group_class.group_type]}
        if all(value is None or value == getattr(member, name) for name, value in stated.items()):
            return member
        return replace(member, **{name: value for name, value in stated.items() if value is not None})

    def next_epoch(self, result: MemberResult[G, M], request: Any) -> int:
        """The group's epoch, see `bump_epoch`. `anew` says whether the names of topics that the member subscribes to
        have changed, and afterwards, whether it is to be reconciled anew."""
        raise NotImplementedError

    def assignor(self, group: G, members: Collection[M]) -> str:
        """Name of the assignor that these members of a group ask for, or that is used without asking."""
        raise NotImplementedError

    def assignable(self, group: G, topic_id: UUID) -> Sequence[int]:
        """Partitions of a topic that can be assigned; also asked in another thread."""
        raise NotImplementedError

    def reconciled(self, result: MemberResult[G, M], target_epoch: int, target: Partitions) -> M:
        """The updated member a step further, or itself. Raises BrokerError (FENCED_MEMBER_EPOCH)."""
        raise NotImplementedError

    def finish_heartbeat(self, result: MemberResult[G, M], epoch: int, request: Any) -> None:
        """Put what else follows from a heartbeat."""

    # ---- records

    def load(self, records: Iterable[GroupRecord]) -> None:
        """Replay the latest record of each key, before the first request. Members get the time of a session."""
        for record in records:
            self.replay(record)
        for group in self.groups.values():
            for member_id in group.members:
                self.begin_session(group.group_id, member_id)

    def commit(self, result: GroupChanges) -> None:
        """Append the records as one batch, then replay them. Raises BrokerError, and then nothing has changed."""
        self._commit(CoordinatorResult(result.records, result.response, result.afterwards))

    def replay(self, record: GroupRecord) -> None:
        group = self.groups.get(record.group_id)
        if record.value is None and (group is None or record.kind is RecordKind.EPOCH):
            self.groups.pop(record.group_id, None)
            return
        if group is None:
            group = self.groups[record.group_id] = self.group_class(record.group_id)
        group.replay(record)

    # ---- heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """A member joins, goes on or leaves. Raises BrokerError, and then nothing has changed."""
        self.check_request(request)
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            return self.leave(request)
        joins, group_id = request.member_epoch == 0, request.group_id
        answer = self.response_class()
        result: MemberResult[G, M] = MemberResult(self.group_class.group_type, group_id, answer)
        group, settings = self.group_for(result, joins=joins), self.settings(group_id)
        self.check_room(group, request.member_id, settings.max_size)
        result.group, result.reported = group, request.owned
        member = result.member = self.member_for(result, request)
        result.updated = self.updated_member(member, request)
        self.put_if_changed(result)
        epoch = self.next_epoch(result, request)
        self.reconcile(result, *self.target(result, group, epoch, result.updated))
        self.finish_heartbeat(result, epoch, request)
        updated = result.updated
        result.then(lambda: self.begin_session(group_id, updated.member_id, settings.session_timeout_ms))
        self.commit(result)
        answer.member_id, answer.member_epoch = updated.member_id, updated.epoch
        answer.interval_ms = settings.heartbeat_interval_ms
        if joins or request.is_full or member.assigned != updated.assigned:
            answer.assignment = {topic: tuple(partitions) for topic, partitions in updated.assigned.items()}
        return answer

    def leave(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.group(request.group_id)
        self.remove_members(group, [group.member(request.member_id)])
        return self.response_class(request.member_id, request.member_epoch)

    def group(self, group_id: str) -> G:
        group = self.groups.get(group_id)
        if group is None:
            self.check_type(group_id)
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    def check_type(self, group_id: str) -> None:
        """Raises BrokerError (GROUP_ID_NOT_FOUND) where a group of another type has the id."""
        own = self.group_class.group_type
        if self.type_of(group_id) not in (None, own):
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a {own.value} group.")

    def check_room(self, group: G, member_id: str, max_size: int) -> None:
        if len(group.members) >= max_size and member_id not in group.members:
            raise BrokerError(
                ErrorCode.group_max_size_reached,
                f"The {group.group_type.value} group has reached its maximum capacity of {max_size} members.",
            )

    def put_if_changed(self, result: MemberResult[G, M]) -> None:
        """Put the updated member; it is looked at `anew` if the names of topics that it subscribes to have changed."""
        member, updated = result.member, result.updated
        if updated is not member and updated != member:
            result.put_member(updated)
            result.anew = updated.topics != member.topics

    def bump_epoch(self, result: MemberResult[G, M], *, bump: bool) -> int:
        """The group's epoch, raised if subscriptions or their topics changed. Raises BrokerError (INVALID_REQUEST)."""
        group, member, updated = result.group, result.member, result.updated
        version = self.context.topics.generation
        if not bump and group.seen_topics_version == version:
            return group.epoch
        names = group.names_after([member], [updated])
        if len(names) > MAX_SUBSCRIBED_TOPICS and not updated.topics <= group.names.keys():
            raise BrokerError(
                ErrorCode.invalid_request,
                f"{len(names)} topics, at most {MAX_SUBSCRIBED_TOPICS} may be named by a group",
            )
        metadata_hash = self.context.metadata_hash(names | group.matched_after([member], [updated]))
        epoch = group.epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            result.put(RecordKind.EPOCH, "", (epoch, metadata_hash))
            log.info("group %.200r: epoch %d", group.group_id, epoch)

        def written() -> None:
            if group.group_id in self.groups:  # of a new group another object, which its records have made
                self.groups[group.group_id].seen_topics_version = version

        result.then(written)
        return epoch

    def reconcile(self, result: MemberResult[G, M], target_epoch: int, target: Partitions) -> None:
        """As `reconciled`, unless the member is where it is to be and that is not to be looked at anew."""
        before = result.updated
        if result.anew or not before.is_reconciled_to(target_epoch):
            updated = result.updated = self.reconciled(result, target_epoch, target)
            if updated != before:
                result.put_current(updated)
                result.then(lambda: self.reconciling(result.group_id, updated))

    def reconciling(self, group_id: str, member: M) -> None:
        """A member has got another assignment."""

    # ---- target assignments
    #
    # Those of large groups are made in a thread: no heartbeat holds the others up (as KIP-1263 has it). Members go on
    # with the target assignment that there is, until the next one is written.

    def target(self, result: GroupChanges, group: G, epoch: int, updated: M) -> tuple[int, Partitions]:
        """The epoch of the target assignment and what it gives to the member, made anew where it is due (KIP-1263)."""
        present = group.assignment_epoch, group.target_of(updated)
        if group.assignment_epoch >= epoch:
            return present
        interval_ms, made_at = self.settings(group.group_id).assignment_interval_ms, group.assignment_timestamp_ms
        if made_at and interval_ms and self.context.clock.now_ms() < made_at + interval_ms:
            self.assignment_waits(result, "assignment interval")
            return present
        if self.takes_long(group, updated):
            result.then(lambda: self._assign_in_background(group.group_id))
            return present
        log.info("group %.200r: target assignment for epoch %d", group.group_id, epoch)
        return epoch, self._assign(result, group, epoch, updated)

    def assignment_waits(self, result: GroupChanges, why: str) -> None:
        """The assignment is due, and not made yet."""

    def takes_long(self, group: G, updated: M) -> bool:
        cost = MEMBER_COSTS * len(group.members)
        for name in group.names_after([], [updated]) | group.matched_after([]):
            topic = self.context.topics.get(name)
            cost += 0 if topic is None else topic.partitions
            if cost > INLINE_COST:
                return True
        return cost > INLINE_COST

    def _assign(self, result: GroupChanges, group: G, epoch: int, updated: M) -> Partitions:
        """Put an epoch's target assignment into `result`; that of `updated`, a new or replaced member, is returned."""
        members = {**group.members, updated.member_id: updated}
        replaced = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
        if replaced not in (None, updated.member_id):
            members.pop(replaced, None)
        assignments = self.assign(group, members)
        for member_id in members:
            partitions = assignments.get(member_id, {})
            before = group.target.get(member_id)
            if before is not partitions and before != partitions:
                result.put(RecordKind.TARGET, member_id, partitions)
        result.put(RecordKind.TARGET_EPOCH, "", (epoch, self.context.clock.now_ms()))
        return assignments.get(updated.member_id, {})

    def assign(self, group: G, members: Mapping[str, M]) -> Assignments:
        """Target assignment of these members; also computed in another thread."""
        topic_ids: dict[frozenset[str], list[UUID]] = {}
        assigned = {}
        for member_id in sorted(members):
            names = group.topics_of(members[member_id])
            if names not in topic_ids:
                topics = map(self.context.topics.get, sorted(names))
                topic_ids[names] = [topic.id for topic in topics if topic is not None]
            target = group.target_of(members[member_id])
            assigned[member_id] = AssignedMember(topic_ids[names], target, members[member_id].instance_id)
        name = self.assignor(group, members.values())
        assign = assign_simple if name == "simple" else CONSUMER_ASSIGNORS[name]
        return assign(GroupSpec(assigned, len(topic_ids) == 1, partial(self.assignable, group)))

    def _assign_in_background(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or group.is_assigning or not group.members:
            return
        group.is_assigning, seen = True, group.snapshot()

        def compute() -> GroupChanges:
            result = GroupChanges(seen.group_type, group_id)
            self._assign(result, seen, seen.epoch, next(iter(seen.members.values())))
            return result

        self.context.background(compute, lambda computed: self._use_assignment(group, seen, computed))

    def _use_assignment(self, began: G, seen: G, computed: GroupChanges | Exception) -> None:
        group_id = began.group_id
        began.is_assigning, group = False, self.groups.get(group_id)
        if group is not began or isinstance(computed, Exception):
            return  # a topic may have gone; the next heartbeat tries again
        if group.assignment_epoch >= seen.epoch or group.static_members != seen.static_members:
            return  # one of this epoch or later was made meanwhile; or a member has another id, without a new epoch
        result = GroupChanges(group.group_type, group_id)
        for record in computed.records:
            if isinstance(record, GroupRecord) and (
                record.kind is RecordKind.TARGET_EPOCH or record.name in group.members  # others have left meanwhile
            ):
                result.records.append(record)
        try:
            self.commit(result)
        except BrokerError as error:
            log.warning("group %.200r: the target assignment could not be written: %s", group_id, error)

    # ---- sessions, and the end of a membership

    def begin_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """A member was heard of. timeout_ms: None for the group's."""
        if timeout_ms is None:
            timeout_ms = self.settings(group_id).session_timeout_ms
        self.remove_after("session", group_id, member_id, timeout_ms, "the member session expired")

    def remove_after(
        self, timer: str, group_id: str, member_id: str, delay_ms: int, why: str, *, if_absent: bool = False
    ) -> None:
        """Remove a member after a time, unless the timer is cancelled, or set anew, which `if_absent` does not do."""
        if not if_absent or not self.timer.is_scheduled((timer, group_id, member_id)):
            self.timer.schedule((timer, group_id, member_id), delay_ms, lambda: self.expire(group_id, member_id, why))

    def expire(self, group_id: str, member_id: str, why: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and member_id in group.members:
            log.info("group %.200r: member %.200r is removed because %s", group_id, member_id, why)
            self.remove_members(group, [group.members[member_id]])

    def cancel_timers(self, group_id: str, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            for timer in _TIMERS:
                self.timer.cancel((timer, group_id, member_id))

    def remove_members(self, group: G, members: Sequence[M]) -> None:
        if not members:
            return
        result = GroupChanges(group.group_type, group.group_id)
        self.put_removal(result, group, members)
        result.then(lambda: self.cancel_timers(group.group_id, [member.member_id for member in members]))
        self.commit(result)

    def delete(self, group: G) -> None:
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
        result = GroupChanges(group.group_type, group.group_id)
        put_group_removal(result, group)
        result.then(lambda: self.forget(group))
        self.commit(result)

    def forget(self, group: G) -> None:
        """The group is no more."""
        self.cancel_timers(group.group_id, group.members)

    def put_removal(self, result: GroupChanges, group: G, members: Sequence[M]) -> None:
        for member in members:
            result.remove_member(member.member_id)
        metadata_hash = self.context.metadata_hash(group.names_after(members) | group.matched_after(members))
        result.put(RecordKind.EPOCH, "", (group.epoch + 1, metadata_hash))


def put_group_removal(result: GroupChanges, group: ModernGroup[Any], renamed: Mapping[str, str] | None = None) -> None:
    """Tombstones of everything. renamed: by member id, the one that its records have in this result already."""
    members = [(renamed or {}).get(member_id, member_id) for member_id in group.members]
    for kind in (RecordKind.CURRENT, RecordKind.TARGET):
        for member_id in members:
            result.put(kind, member_id, None)
    result.put(RecordKind.TARGET_EPOCH, "", None)
    for member_id in members:
        result.put(RecordKind.MEMBER, member_id, None)
    for kind, name in group.last_records():
        result.put(kind, name, None)


def check_not_blank(fields: Iterable[tuple[str | None, str]]) -> None:
    """fields: (text, name). Raises BrokerError (INVALID_REQUEST)."""
    for text, name in fields:
        if text is not None and not text.strip():
            raise BrokerError(ErrorCode.invalid_request, f"{name} can't be empty.")


def check_epoch(
    group_type: GroupType, member: ModernMember, epoch: int, *, takes_previous: bool, if_smaller: str = ""
) -> None:
    """takes_previous: of the epoch before, as the answer with the next was lost. BrokerError FENCED_MEMBER_EPOCH."""
    if epoch in (0, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch and takes_previous):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise BrokerError(
        ErrorCode.fenced_member_epoch,
        f"The {group_type.value} group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}){if_smaller if epoch < member.epoch else ''}. The member must abandon all its "
        "partitions and rejoin.",
    )
