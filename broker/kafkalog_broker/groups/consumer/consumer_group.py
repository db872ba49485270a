"""A consumer group in memory (Kafka's ConsumerGroup)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import CommittedPartition
from kafkalog_broker.groups.consumer.reconciling import ReconcilingGroup, ReconcilingMember, stale, still_has
from kafkalog_broker.groups.modern.group_manager import Reported
from kafkalog_broker.groups.modern.group_records import (
    GroupRecord,
    GroupType,
    MemberState,
    Owned,
    RecordKind,
    ResolvedRegex,
)
from kafkalog_broker.groups.modern.modern_group import add_count


@dataclass(frozen=True, slots=True)
class ConsumerMember(ReconcilingMember):
    regex: str | None = ""
    assignor: str | None = None


class ConsumerGroup(ReconcilingGroup[ConsumerMember]):
    """Every partition has one owner at any time."""

    group_type = GroupType.CONSUMER
    member_class = ConsumerMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}  # expressions that have been resolved
        self.is_resolving = False  # expressions are matched in the background
        self.matched_version = -1
        """Version of the topics that expressions were last matched with in this process."""
        self.has_topics_record = False  # Kafka 4.0 left the topics' metadata in the log
        self.classic_members = 0
        self.regex_names: Counter[str] = Counter()  # how many resolved expressions match a topic
        self.subscribed_regexes: Counter[str] = Counter()
        self._owner_epochs: dict[UUID, dict[int, int]] = {}

    def snapshot(self) -> Self:
        copied = super().snapshot()
        copied.regexes, copied.regex_names = dict(self.regexes), self.regex_names.copy()
        return copied

    def replay(self, record: GroupRecord) -> None:
        if record.kind is RecordKind.TOPICS:
            self.has_topics_record = record.value is not None
        elif record.kind is RecordKind.REGEX:
            self._set_regex(record.name, record.value)
        else:
            super().replay(record)

    def last_records(self) -> Iterable[tuple[RecordKind, str]]:
        regexes = ((RecordKind.REGEX, regex) for regex in self.regexes)
        return [*regexes, (RecordKind.TOPICS, ""), (RecordKind.EPOCH, "")]

    def identified(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that has this id, and instance id. Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is None:
            return self.member(member_id)
        owner = self.static_member(instance_id)
        if owner is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if owner.member_id != member_id:
            raise BrokerError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
            )
        return owner

    # ---- owners of partitions

    def _count(self, member: ConsumerMember, by: int) -> None:
        super()._count(member, by)
        self.classic_members += by * (member.classic is not None)
        if member.regex:
            add_count(self.subscribed_regexes, member.regex, by)
        change_owner = self._own if by > 0 else self._disown
        for owned in (member.assigned, member.pending_revocation):
            change_owner(owned, member.epoch)

    def _own(self, owned: Owned, epoch: int) -> None:
        for topic, partitions in owned.items():
            epochs = self._owner_epochs.setdefault(topic, {})
            for partition in partitions:
                epochs[partition] = max(epoch, epochs.get(partition, epoch))

    def _disown(self, owned: Owned, epoch: int) -> None:
        """Except what another has taken over at another epoch (a static member that was replaced)."""
        for topic, partitions in owned.items():
            epochs = self._owner_epochs.get(topic, {})
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._owner_epochs.pop(topic, None)

    def has_owner(self, topic: UUID, partition: int) -> bool:
        """True if some member has a partition, or is still to give it up."""
        return self._owner_epochs.get(topic, {}).get(partition, -1) != -1

    def is_free_for(self, member: ConsumerMember, key: UUID, partition: int) -> bool:
        return not self.has_owner(key, partition) or partition in member.pending_revocation.get(key, ())

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        return any(
            partition not in member.assigned.get(topic, {}) and self.has_owner(topic, partition)
            for topic, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    # ---- subscriptions

    def _set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.pop(regex, None)
        for topic in before.topics if before is not None else ():
            add_count(self.regex_names, topic, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            for topic in resolved.topics:
                add_count(self.regex_names, topic, 1)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or topic in self.regex_names

    def regexes_after(self, leaving: Iterable[ConsumerMember], joining: Iterable[ConsumerMember] = ()) -> Counter[str]:
        """How many members subscribe with each expression once some have gone and others come."""
        regexes = self.subscribed_regexes.copy()
        regexes.subtract(member.regex for member in leaving if member.regex)
        regexes.update(member.regex for member in joining if member.regex)
        return +regexes

    def matched_after(self, leaving: Iterable[ConsumerMember], joining: Iterable[ConsumerMember] = ()) -> set[str]:
        regexes = self.regexes_after(leaving, joining) if self.regexes else ()
        return {name for regex in regexes if regex in self.regexes for name in self.regexes[regex].topics}

    def supports(self, protocols: Iterable[str]) -> bool:
        """True if all classic members know one of these protocols."""
        counts: Counter[str] = Counter()
        for member in self.members.values():
            if member.classic is not None:
                counts.update({name for name, _ in member.classic.protocols})
        return any(counts[name] == self.classic_members for name in protocols)

    def assigned_since(self, member: ConsumerMember, partition: CommittedPartition) -> int:
        topic_id, index = partition.topic_id, partition.partition
        since = None
        for owned in (member.pending_revocation, member.assigned):
            since = since if topic_id is None else owned.get(topic_id, {}).get(index, since)
        if since is None:
            raise stale(member, f"Partition {index} of {topic_id} is not assigned or pending revocation.")
        return since


def without_unsubscribed(
    member: ConsumerMember, reported: Reported | None, subscribed: Collection[UUID]
) -> ConsumerMember:
    """In its epoch, without the topics that it does not subscribe to any more."""
    gone = {topic for topic in member.assigned if topic not in subscribed}
    if not gone:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic not in gone}
    pending = {topic: dict(epochs) for topic, epochs in member.pending_revocation.items()}
    for topic in gone:
        pending.setdefault(topic, {}).update(member.assigned[topic])
    if still_has(pending, reported):
        return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return replace(member, previous_epoch=member.epoch, assigned=assigned)  # it has given them up already
