"""Records of one request: appended as one batch, then replayed (Kafka's CoordinatorResult)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.groups.consumer.changes import (
    Change,
    CurrentValue,
    EpochValue,
    Kind,
    MemberValue,
    TargetEpochValue,
    encode,
)
from kafkalog_broker.groups.consumer.consumer_group import LEAVING, ConsumerGroup, ConsumerMember


class Draft:
    """Changes in their order, records of classic groups among them, and what is done once they are in the log."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.steps: list[Change | Record] = []
        self._after: list[Callable[[], None]] = []

    def change(self, kind: Kind, name: str, value: object) -> None:
        self.steps.append(Change(kind, self.group_id, name, value))

    def record(self, record: Record) -> None:
        """Add a record of a classic group."""
        self.steps.append(record)

    def then(self, call: Callable[[], None]) -> None:
        self._after.append(call)

    def records(self) -> list[Record]:
        """Raises BrokerError for what does not fit into a record."""
        return [encode(step) if isinstance(step, Change) else step for step in self.steps]

    def changes(self) -> list[Change]:
        return [step for step in self.steps if isinstance(step, Change)]

    def done(self) -> None:
        """The changes are in the log and in memory."""
        for call in self._after:
            call()


# The changes that members and whole groups make, kind by kind (GroupCoordinatorRecordHelpers, ConsumerGroup).


def put_member(draft: Draft, member: ConsumerMember) -> None:
    value = MemberValue(
        member.instance_id, member.rack_id, member.client_id, member.client_host, member.topics, member.regex,
        member.rebalance_timeout_ms, member.assignor, member.classic,
    )  # fmt: skip
    draft.change(Kind.MEMBER, member.member_id, value)


def put_current(draft: Draft, member: ConsumerMember) -> None:
    value = CurrentValue(member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation)
    draft.change(Kind.CURRENT, member.member_id, value)


def remove_member(draft: Draft, member_id: str) -> None:
    for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
        draft.change(kind, member_id, None)


def replace_member(draft: Draft, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember) -> None:
    """A static member goes on under another member id, with the assignment that it had."""
    remove_member(draft, old.member_id)
    put_member(draft, new)
    draft.change(Kind.TARGET, new.member_id, group.target.get(old.member_id, {}))
    put_current(draft, new)


def put_group(draft: Draft, group: ConsumerGroup) -> None:
    """All of a group that is in no record yet."""
    for member in group.members.values():
        put_member(draft, member)
    draft.change(Kind.EPOCH, "", EpochValue(group.epoch, group.metadata_hash))
    for member_id in group.members:
        draft.change(Kind.TARGET, member_id, group.target.get(member_id, {}))
    draft.change(Kind.TARGET_EPOCH, "", TargetEpochValue(group.assignment_epoch, group.assignment_timestamp_ms))
    for member in group.members.values():
        put_current(draft, member)


def remove_group(draft: Draft, group: ConsumerGroup, renamed: tuple[str, str] = ("", "")) -> None:
    """Tombstones of everything. renamed: a member id, and the one that its records have in this draft already."""
    before, after = renamed
    members = [after if member == before else member for member in group.members]
    for kind in (Kind.CURRENT, Kind.TARGET):
        for member_id in members:
            draft.change(kind, member_id, None)
    draft.change(Kind.TARGET_EPOCH, "", None)
    for member_id in members:
        draft.change(Kind.MEMBER, member_id, None)
    for regex in group.regexes:
        draft.change(Kind.REGEX, regex, None)
    draft.change(Kind.TOPICS, "", None)
    draft.change(Kind.EPOCH, "", None)


# Changes applied to groups in memory: those that were just written, and those that are read at a start.
#
# Kafka's GroupMetadataManager.replay. A start applies what remains of each key after all records, so the order of
# changes does not count there.

Groups = dict[str, ConsumerGroup]


def apply(groups: Groups, changes: Iterable[Change]) -> None:
    for change in changes:
        _apply(groups, change)


def _apply(groups: Groups, change: Change) -> None:
    group = groups.get(change.group_id)
    if group is None:
        if change.value is None:
            return  # there is nothing to be taken away
        group = groups[change.group_id] = ConsumerGroup(change.group_id)
    value = change.value
    match change.kind:
        case Kind.EPOCH:
            if value is None:
                del groups[change.group_id]
            else:
                group.epoch, group.metadata_hash = value
        case Kind.TOPICS:
            group.has_topics_record = value is not None
        case Kind.TARGET_EPOCH:
            group.assignment_epoch, group.assignment_timestamp_ms = (LEAVING, 0) if value is None else value
        case Kind.TARGET:
            group.set_target(change.name, value)
        case Kind.REGEX:
            group.set_regex(change.name, value)
        case Kind.MEMBER | Kind.CURRENT:
            _apply_to_member(group, change)


def _apply_to_member(group: ConsumerGroup, change: Change) -> None:
    value = change.value
    member = group.members.get(change.name)
    if value is None:
        if member is not None and change.kind is Kind.CURRENT:
            group.put(replace(member, epoch=LEAVING, previous_epoch=LEAVING, assigned={}, pending_revocation={}))
        elif member is not None:
            group.remove(change.name)
        return
    member = member or ConsumerMember(change.name)
    if change.kind is Kind.CURRENT:
        updated = replace(
            member, epoch=value.epoch, previous_epoch=value.previous_epoch, state=value.state,
            assigned=value.assigned, pending_revocation=value.pending_revocation,
        )  # fmt: skip
    else:
        updated = replace(
            member, instance_id=value.instance_id, rack_id=value.rack_id, client_id=value.client_id,
            client_host=value.client_host, topics=value.topics, regex=value.regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms, assignor=value.assignor, classic=value.classic,
        )  # fmt: skip
    group.put(updated)
