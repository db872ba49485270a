"""The changes that members and whole groups make, kind by kind (GroupCoordinatorRecordHelpers, ConsumerGroup)."""

from __future__ import annotations

from kafkalog_broker.groups.modern.changes import CurrentValue, EpochValue, Kind, MemberValue, TargetEpochValue
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.values import ConsumerMember


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
