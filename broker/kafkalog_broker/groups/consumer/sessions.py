"""Members that leave or are put out, and the time-outs that put them out (KIP-848).

| timer | begins | ends with |
|---|---|---|
| session | each heartbeat | the next |
| rebalance | partitions are to be given up | they are, or a later epoch |
| join | a classic member was told to join again | it has joined |
| sync | a classic member has joined | it has its assignment |
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import Group, Member
from kafkalog_broker.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    NamedPartitions,
    assignment_of,
    parse_assignment,
    parse_subscription,
)
from kafkalog_broker.groups.classic.offset_records import group_key, group_value
from kafkalog_broker.groups.consumer.changes import EpochValue, Kind
from kafkalog_broker.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from kafkalog_broker.groups.consumer.draft import Draft, put_group, remove_group, remove_member
from kafkalog_broker.groups.consumer.group_store import GroupStore
from kafkalog_broker.groups.consumer.topics_view import TopicsView

# Classic groups that become consumer groups, and back, while their members go on (KIP-848, online migration).

_UPGRADES = {"upgrade", "bidirectional"}
_DOWNGRADES = {"downgrade", "bidirectional"}


# ---- to a consumer group


def upgrade(store: GroupStore, draft: Draft, group: Group) -> ConsumerGroup:
    """The consumer group that a classic one with members becomes, once `draft` is done. Raises BrokerError
    (GROUP_ID_NOT_FOUND) where it may not or cannot."""
    _check_upgrade(group, store.config)
    made = _consumer_group(group, store.topics)
    made.metadata_hash = store.hashes.of_group(made.names)
    draft.record((group_key(group.group_id), None))
    put_group(draft, made)

    def done() -> None:
        store.classic.forget(group)
        log.info("group %.200r: the classic group has become a consumer group", group.group_id)

    draft.then(done)
    return made


def _check_upgrade(group: Group, config: BrokerConfig) -> None:
    why = None
    if config.group_consumer_migration_policy.lower() not in _UPGRADES:
        why = "online upgrade is disabled"
    elif group.protocol_type != PROTOCOL_TYPE:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.group_consumer_max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _not_upgraded(group.group_id, f"because {why}.")


def _not_upgraded(group_id: str, why: str) -> BrokerError:
    what = f"Cannot upgrade classic group {group_id} to consumer group {why}"
    log.info("%s", what)
    return BrokerError(ErrorCode.group_id_not_found, what)


def _consumer_group(group: Group, topics: TopicsView) -> ConsumerGroup:
    """All members are at the group's generation, and have what they were assigned last."""
    made = ConsumerGroup(group.group_id)
    made.epoch = made.assignment_epoch = group.generation
    for member in group.members.values():
        try:
            assigned = _assigned(group.group_id, member.assignment, topics)
            # In its first join phase a group has no protocol yet, and any of a member's says what it subscribes to.
            metadata = member.protocols[0][1] if group.protocol is None else member.metadata(group.protocol)
            subscription = parse_subscription(metadata)
        except (ValueError, KeyError):
            raise _not_upgraded(group.group_id, "because the embedded consumer protocol is malformed.") from None
        made.set_target(member.member_id, assigned)
        made.put(
            ConsumerMember(
                member.member_id, group.generation, group.generation,
                instance_id=member.group_instance_id, rack_id=subscription.rack_id,
                rebalance_timeout_ms=member.rebalance_timeout_ms, client_id=member.client_id,
                client_host=member.client_host, topics=frozenset(subscription.topics),
                assigned={
                    topic: dict.fromkeys(partitions, group.generation) for topic, partitions in assigned.items()
                },
                classic=ClassicMember(member.session_timeout_ms, member.protocols),
            )
        )  # fmt: skip
    return made


def _assigned(group_id: str, assignment: bytes, topics: TopicsView) -> Partitions:
    if not assignment:
        return {}  # it has joined, and not synced yet
    partitions, user_data = parse_assignment(assignment)
    if user_data:
        raise _not_upgraded(
            group_id,
            "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade.",
        )
    return by_id(partitions, topics)


def by_id(partitions: NamedPartitions, topics: TopicsView) -> dict[UUID, tuple[int, ...]]:
    """Without topics that do not exist."""
    found = {topics.by_name(name): tuple(numbers) for name, numbers in partitions.items()}
    return {topic.topic_id: numbers for topic, numbers in found.items() if topic is not None}


# ---- to a classic group


def may_downgrade(group: ConsumerGroup, leaving: Collection[str], config: BrokerConfig) -> bool:
    """True if the group becomes a classic one when these members are gone: all others are classic."""
    left = [member for member_id, member in group.members.items() if member_id not in leaving]
    return bool(left) and all(member.classic is not None for member in left) and _fits(group, len(left), config)


def may_downgrade_replacing(group: ConsumerGroup, replaced: ConsumerMember, config: BrokerConfig) -> bool:
    """The same when a classic static member takes the place of the only one that is not."""
    only = group.classic_members == len(group.members) - 1 and replaced.classic is None
    return only and _fits(group, len(group.members), config)


def _fits(group: ConsumerGroup, members: int, config: BrokerConfig) -> bool:
    why = None
    if config.group_consumer_migration_policy.lower() not in _DOWNGRADES:
        why = "the online downgrade is disabled"
    elif members > config.group_max_size:
        why = "its group size is greater than classic group max size"
    if why is not None:
        log.info("Cannot downgrade consumer group %.200s to classic group because %s.", group.group_id, why)
    return why is None


def downgrade(
    store: GroupStore, draft: Draft, group: ConsumerGroup, *, leaving: Collection[str] = (),
    joining: ConsumerMember | None = None, reason: str | None,
) -> None:  # fmt: skip
    """The classic group that this one becomes, once `draft` is done. joining: a classic static member whose records
    are in the draft, in the place of the one that has its instance id. reason: why it begins with a rebalance; None:
    it does not."""
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = ("", "") if replaced is None or joining is None else (replaced.member_id, joining.member_id)
    remove_group(draft, group, renamed)
    made = Group.stable(group.group_id, group.epoch, store.now_ms)
    for member in group.members.values():
        if member.member_id not in leaving and member is not replaced:
            made.add(_classic_member(member))
    if joining is not None:
        made.add(_classic_member(joining))
    made.settle_protocol()
    for classic in made.members.values():
        target = renamed[0] if classic.member_id == renamed[1] else classic.member_id
        version = int.from_bytes(classic.metadata(made.protocol)[:2], "big")
        classic.assignment = assignment_of(by_name(group.target.get(target, {}), store.topics), version)
    draft.record((group_key(group.group_id), group_value(made.to_record())))

    def done() -> None:
        store.classic.take_over(made, reason)
        log.info("group %.200r: the consumer group has become a classic group", group.group_id)

    draft.then(done)


def by_name(partitions: Mapping[UUID, Sequence[int]], topics: TopicsView) -> dict[str, Sequence[int]]:
    """Without topics that do not exist."""
    found = {topics.by_id(topic_id): numbers for topic_id, numbers in partitions.items()}
    return {topic.name: numbers for topic, numbers in found.items() if topic is not None}


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id, member.instance_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
        member.classic.session_timeout_ms, PROTOCOL_TYPE, member.classic.protocols,
    )  # fmt: skip


log = logging.getLogger(__name__)

_TIMERS = ("session", "rebalance", "join-again", "sync-again")


class Sessions:
    """Who is a member for how long."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    # ---- time-outs

    def begin(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """A member was heard of. timeout_ms: None for the group's."""
        if timeout_ms is None:
            timeout_ms = self._store.settings(group_id).session_timeout_ms
        self._put_out_after("session", group_id, member_id, timeout_ms, "the member session expired")

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member is to join again; the time runs since it was first told."""
        self._put_out_after(
            "join-again", group_id, member.member_id, member.rebalance_timeout_ms,
            "the classic member failed to join within the rebalance timeout", if_absent=True,
        )  # fmt: skip

    def has_joined(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A classic member has joined and is to ask for its assignment."""
        self._store.timers.cancel(("join-again", group_id, member_id))
        self._put_out_after("sync-again", group_id, member_id, timeout_ms, "the member failed to sync within timeout")

    def has_synced(self, group_id: str, member_id: str) -> None:
        self._store.timers.cancel(("sync-again", group_id, member_id))

    def _put_out_after(
        self, timer: str, group_id: str, member_id: str, delay_ms: int, why: str, *, if_absent: bool = False
    ) -> None:
        key = (timer, group_id, member_id)
        self._store.after(key, delay_ms, lambda: self._put_out(group_id, member_id, why), if_absent=if_absent)

    def _put_out(self, group_id: str, member_id: str, why: str) -> None:
        group = self._store.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            log.info("group %.200r: member %.200r is put out because %s", group_id, member_id, why)
            self.remove(group, [member])

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that has to give partitions up does so within its rebalance timeout; others have no such timer."""
        key = ("rebalance", group_id, member.member_id)
        if member.classic is not None:
            return
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._store.timers.cancel(key)
            return
        member_id, epoch = member.member_id, member.epoch

        def check() -> None:
            group = self._store.groups.get(group_id)
            current = None if group is None else group.members.get(member_id)
            if current is not None and current.epoch == epoch:
                self._put_out(
                    group_id, member_id,
                    f"it failed to transition from epoch {epoch} within {member.rebalance_timeout_ms}ms",
                )  # fmt: skip

        self._store.after(key, member.rebalance_timeout_ms, check)

    def forget(self, group_id: str, member_ids: Sequence[str]) -> None:
        for member_id in member_ids:
            for timer in _TIMERS:
                self._store.timers.cancel((timer, group_id, member_id))

    def begin_all(self, group: ConsumerGroup) -> None:
        """After a start: everybody gets the time of a session to be heard of."""
        for member in group.members.values():
            self.begin(group.group_id, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.expect_revocation(group.group_id, member)

    # ---- the end of a membership

    def remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Members are no longer. Where only classic ones are left, the group becomes a classic one. Raises
        BrokerError."""
        if not members:
            return
        draft = Draft(group.group_id)
        gone = {member.member_id for member in members}
        if may_downgrade(group, gone, self._store.config):
            reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
            downgrade(self._store, draft, group, leaving=gone, reason=reason)
        else:
            for member in members:
                remove_member(draft, member.member_id)
            deleted = _regexes_of_nobody(group, members)
            for regex in deleted:
                draft.change(Kind.REGEX, regex, None)
            metadata_hash = self._store.hashes.of_group(_names_without(group, members, deleted))
            draft.change(Kind.EPOCH, "", EpochValue(group.epoch + 1, metadata_hash))
        draft.then(lambda: self.forget(group.group_id, sorted(gone)))
        self._store.commit(draft)


def _regexes_of_nobody(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[str]:
    """Expressions that only those who leave subscribe to."""
    counts: dict[str, int] = {}
    for member in leaving:
        if member.regex:
            counts[member.regex] = counts.get(member.regex, 0) + 1
    return [regex for regex, count in counts.items() if group.subscribed_regexes[regex] == count]


def _names_without(group: ConsumerGroup, leaving: Sequence[ConsumerMember], regexes: Sequence[str]) -> set[str]:
    names, regex_names = group.names.copy(), group.regex_names.copy()
    for member in leaving:
        names.subtract(member.topics)
    for regex in regexes:
        resolved = group.regexes.get(regex)
        regex_names.subtract(resolved.topics if resolved is not None else ())
    return {*(+names), *(+regex_names)}
