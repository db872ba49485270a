"""Requests and answers of consumer groups, and their descriptions, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import java_hash
from kafkalog_broker.coordinator.java_order import copied, in_map_order
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group import (
    LEAVING,
    LEAVING_STATIC,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
)
from kafkalog_broker.groups.consumer.topics_view import TopicsView

# The next step of a member towards its target assignment (Kafka's CurrentAssignmentBuilder, KIP-848).
#
# A partition has one owner at any time: a member first gives up what it is to lose, and stays in its epoch until it
# has said so; it gets what is new to it when nobody else has that any more.

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
    """True if a member has something of what it was asked to give up. Who says nothing still has it."""
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


NOT_SAID = -1
"""A rebalance timeout that has not changed since the last heartbeat."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat. None: as in the last one. may_describe: whether the sender may see a topic, which its
    regular expression might match. rebalance_timeout_ms: NOT_SAID for none."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Reported | None = None
    client_id: str = ""
    client_host: str = ""
    needs_member_id: bool = True
    """v1: the client makes its id (KIP-1082)."""
    may_describe: Callable[[str], bool] | None = None

    @property
    def says_nothing_new(self) -> bool:
        """Nothing but that the member is there, and perhaps which partitions it has."""
        said = (self.instance_id, self.rack_id, self.topics, self.regex, self.assignor)
        return self.rebalance_timeout_ms == NOT_SAID and said == (None,) * len(said)

    @property
    def is_full(self) -> bool:
        """Everything is said, as when joining or after an error: it is answered with the assignment."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NOT_SAID and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """interval_ms: until the next heartbeat. assignment: None where it has not changed."""

    member_id: str
    member_epoch: int
    interval_ms: int = 0
    assignment: Mapping[UUID, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    topic_id: UUID
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """Description of a member. is_classic: it speaks JoinGroup."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: tuple[DescribedTopic, ...]
    target: tuple[DescribedTopic, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    error: ErrorCode = ErrorCode.none
    error_message: str | None = None


# Which heartbeats are refused, with Kafka's codes and words (GroupCoordinatorService, GroupMetadataManager).


def check_request(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raises BrokerError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR. Whatever the group is."""
    epoch = request.member_epoch
    if request.needs_member_id or epoch > 0 or epoch == LEAVING:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == NOT_SAID:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise BrokerError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_not_empty(text: str | None, what: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{what} can't be empty.")


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, what)


def check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    """Raises BrokerError (FENCED_MEMBER_EPOCH). The epoch before is taken from who has nothing but what it was
    assigned: the answer with its next epoch was lost."""
    if epoch in (0, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_part(reported, member.assigned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise BrokerError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part(reported: Reported | None, assigned: Owned) -> bool:
    if reported is None:
        return False
    return all(
        partition in assigned.get(topic, {}) for topic, partitions in reported.items() for partition in partitions
    )


def check_released(owner: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Raises BrokerError (UNRELEASED_INSTANCE_ID) while the member that has the instance id has not left."""
    if owner.epoch != LEAVING_STATIC:
        raise BrokerError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {owner.member_id} member.",
        )


def check_static(owner: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member. Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if owner is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise BrokerError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
        )
    return owner


# What administrators are shown of a consumer group (ConsumerGroup.asDescribedGroup).


def describe(group: ConsumerGroup, default_assignor: str, topics: TopicsView) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group.group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.preferred_assignor(None, None) or default_assignor,
        tuple(_member(group, member, topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> DescribedConsumer:
    held: dict[UUID, list[int]] = {}
    for owned in (member.assigned, member.pending_revocation):  # until it has given them up, they are its
        for topic, epochs in owned.items():
            held.setdefault(topic, []).extend(epochs)
    return DescribedConsumer(
        member.member_id, member.instance_id, member.rack_id, member.epoch, member.client_id, member.client_host,
        tuple(in_map_order(sorted(member.topics), java_hash, copied(len(member.topics)))), member.regex,
        _described(held, topics), _described(group.target.get(member.member_id, {}), topics),
        member.classic is not None,
    )  # fmt: skip


def _described(partitions: Mapping[UUID, Iterable[int]], topics: TopicsView) -> tuple[DescribedTopic, ...]:
    """Without topics that do not exist any more."""
    found = ((topics.by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return tuple(
        DescribedTopic(topic.topic_id, topic.name, tuple(numbers)) for topic, numbers in found if topic is not None
    )
