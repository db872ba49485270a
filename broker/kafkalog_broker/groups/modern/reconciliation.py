"""The next step of a member towards its target assignment (Kafka's CurrentAssignmentBuilder, KIP-848).

A partition has one owner at any time: a member first gives up what it is to lose, and stays in its epoch until it has
said so; it gets what is new to it when nobody else has that any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.values import ConsumerMember, MemberState, Owned, Partitions

Reported = Mapping[UUID, Collection[int]]
"""The partitions that a member says it has, by topic id."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a member is to go. has_owner: whether somebody has a partition. is_subscribed: whether the member
    subscribes to a topic that exists. reported: what it says it has; None: nothing was said."""

    epoch: int
    partitions: Partitions
    has_owner: Callable[[UUID, int], bool]
    is_subscribed: Callable[[UUID], bool]
    reported: Reported | None


def reconciled(member: ConsumerMember, target: Target, *, subscription_changed: bool) -> ConsumerMember:
    """The member one step further, or itself where it has to wait. subscription_changed: what it does not subscribe to
    any more is taken from it at once.

    Raises BrokerError (FENCED_MEMBER_EPOCH) in a state that is not known here.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return _without_unsubscribed(member, target) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.pending_revocation, target.reported):
            return _without_unsubscribed(member, target) if subscription_changed else member
        case MemberState.UNKNOWN:
            if target.reported is None or target.reported:
                raise BrokerError(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin.",
                )
            return _next(member, target, target.epoch)
        case _:
            return _next(member, target, member.epoch)


def _still_has(revoked: Owned, reported: Reported | None) -> bool:
    """Whether a member has something of what it was asked to give up. Who says nothing still has it."""
    if reported is None:
        return True
    return any(
        partition in revoked[topic] for topic, partitions in reported.items() if topic in revoked
        for partition in partitions
    )  # fmt: skip


def _without_unsubscribed(member: ConsumerMember, target: Target) -> ConsumerMember:
    """In its epoch, without the topics that it does not subscribe to any more."""
    gone = {topic for topic in member.assigned if not target.is_subscribed(topic)}
    if not gone:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic not in gone}
    pending = {topic: dict(epochs) for topic, epochs in member.pending_revocation.items()}
    for topic in gone:
        pending.setdefault(topic, {}).update(member.assigned[topic])
    if _still_has(pending, target.reported):
        return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return replace(member, previous_epoch=member.epoch, assigned=assigned)  # it has given them up already


def _next(member: ConsumerMember, target: Target, epoch: int) -> ConsumerMember:
    assigned: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    gained: dict[UUID, list[int]] = {}
    waits = False
    for topic in dict.fromkeys((*target.partitions, *member.assigned)):
        wanted = target.partitions.get(topic, ()) if target.is_subscribed(topic) else ()
        wanted_set = frozenset(wanted)
        held = member.assigned.get(topic, {})
        kept = {partition: since for partition, since in held.items() if partition in wanted_set}
        if kept:
            assigned[topic] = kept
        if len(kept) < len(held):
            revoked[topic] = {partition: since for partition, since in held.items() if partition not in wanted_set}
        own = member.pending_revocation.get(topic, {})
        for partition in wanted:
            if partition in kept:
                continue
            if target.has_owner(topic, partition) and partition not in own:
                waits = True
            else:
                gained.setdefault(topic, []).append(partition)
    if revoked and _still_has(revoked, target.reported):
        return member.at_epoch(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    for topic, partitions in gained.items():
        assigned.setdefault(topic, {}).update(dict.fromkeys(partitions, target.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.at_epoch(target.epoch, state, assigned, {})
