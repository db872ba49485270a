"""Classic groups that become consumer groups, and back, while their members go on (KIP-848, online migration)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import Group, GroupState, Member
from kafkalog_broker.groups.classic.consumer_protocol import (
    PROTOCOL_TYPE,
    NamedPartitions,
    assignment_of,
    parse_assignment,
    parse_subscription,
    version_of,
)
from kafkalog_broker.groups.classic.offset_records import group_key
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_manager import GroupChanges
from kafkalog_broker.groups.modern.group_records import ClassicMetadata, Partitions, RecordKind
from kafkalog_broker.storage.topic_registry import TopicRegistry

log = logging.getLogger(__name__)

# ---- to a consumer group


def upgraded(context: GroupContext, result: GroupChanges, classic: Group) -> ConsumerGroup:
    """The consumer group that a classic one with members becomes: all are at the group's generation, and have what they
    were assigned last. Raises BrokerError (GROUP_ID_NOT_FOUND) where it may not or cannot."""
    _check_upgrade(classic, context.config)
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation
    for member in classic.members.values():
        try:
            target = _assigned(classic.group_id, member.assignment, context.topics)
            # In its first join phase a group has no protocol yet, and any of a member's says what it subscribes to.
            metadata = member.protocols[0][1] if classic.protocol is None else member.metadata(classic.protocol)
            subscription = parse_subscription(metadata)
        except (ValueError, KeyError):
            raise _not_upgraded(classic.group_id, "because the embedded consumer protocol is malformed.") from None
        group.target[member.member_id] = target
        group.put(
            ConsumerMember(
                member.member_id, group.epoch, group.epoch,
                instance_id=member.group_instance_id, rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms, client_id=member.client_id,
                client_host=member.client_host, topics=frozenset(subscription.topics),
                assigned={topic: dict.fromkeys(partitions, group.epoch) for topic, partitions in target.items()},
                classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            )
        )  # fmt: skip
    group.metadata_hash = context.metadata_hash(group.names)
    result.records.append((group_key(group.group_id), None))
    for consumer in group.members.values():
        result.put_member(consumer)
    result.put(RecordKind.EPOCH, "", (group.epoch, group.metadata_hash))
    for member_id, target in group.target.items():
        result.put(RecordKind.TARGET, member_id, target)
    result.put(RecordKind.TARGET_EPOCH, "", (group.assignment_epoch, 0))
    for consumer in group.members.values():
        result.put_current(consumer)
    result.then(lambda: log.info("group %.200r: the classic group has become a consumer group", group.group_id))
    return group


def _check_upgrade(group: Group, config: BrokerConfig) -> None:
    why = None
    if config.group_consumer_migration_policy.lower() not in {"upgrade", "bidirectional"}:
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


def _assigned(group_id: str, assignment: bytes, topics: TopicRegistry) -> Partitions:
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


def by_id(partitions: NamedPartitions, topics: TopicRegistry) -> dict[UUID, tuple[int, ...]]:
    """Without topics that do not exist."""
    found = ((topics.get(name), tuple(indexes)) for name, indexes in partitions.items())
    return {topic.id: indexes for topic, indexes in found if topic is not None}


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
    if config.group_consumer_migration_policy.lower() not in {"downgrade", "bidirectional"}:
        why = "the online downgrade is disabled"
    elif members > config.group_max_size:
        why = "its group size is greater than classic group max size"
    if why is not None:
        log.info("Cannot downgrade consumer group %.200s to classic group because %s.", group.group_id, why)
    return why is None


def downgrade(
    context: GroupContext, result: GroupChanges, group: ConsumerGroup, *, leaving: Collection[str],
    joining: ConsumerMember | None,
) -> Group:  # fmt: skip
    """The classic group this one becomes. joining: a classic static member replacing the one of its instance id."""
    replaced = None if joining is None else group.static_member(joining.instance_id)
    classic = Group(group.group_id, context.clock.now_ms)
    classic.state, classic.generation = GroupState.STABLE, group.epoch
    for member in group.members.values():
        if member.member_id not in leaving and member is not replaced:
            classic.add(_classic_member(member))
    if joining is not None:
        classic.add(_classic_member(joining))
    classic.settle_protocol()
    for classic_member in classic.members.values():
        target = group.target.get(classic_member.member_id, {})
        if joining is not None and classic_member.member_id == joining.member_id:
            target = group.target_of(joining)
        version = version_of(classic_member.metadata(classic.protocol))
        classic_member.assignment = assignment_of(by_name(target, context.topics), version)
    result.records.append(classic.to_record())
    return classic


def by_name(partitions: Mapping[UUID, Sequence[int]], topics: TopicRegistry) -> dict[str, Sequence[int]]:
    found = ((topics.by_id(topic_id), indexes) for topic_id, indexes in partitions.items())
    return {topic.name: indexes for topic, indexes in found if topic is not None}


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id, member.instance_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
        member.classic.session_timeout_ms, PROTOCOL_TYPE, member.classic.protocols,
    )  # fmt: skip
