"""Classic groups that become consumer groups, and back, while their members go on (KIP-848, online migration)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    NamedPartitions,
    assignment_of,
    parse_assignment,
    parse_subscription,
)
from kafkalog_broker.groups.group import Group
from kafkalog_broker.groups.member import Member
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.group_store import GroupStore
from kafkalog_broker.groups.modern.member_changes import put_group, remove_group
from kafkalog_broker.groups.modern.topics_view import TopicsView
from kafkalog_broker.groups.modern.values import ClassicMember, ConsumerMember, Partitions
from kafkalog_broker.groups.offset_records import group_key, group_value

log = logging.getLogger(__name__)

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
    """Whether the group becomes a classic one when these members are gone: all others are classic."""
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
