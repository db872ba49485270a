"""A consumer group and its members (Kafka's ConsumerGroup and ConsumerGroupMember)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.partition_owners import PartitionOwners
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType, RecordKind, ResolvedRegex
from kafkalog_broker.groups.modern.modern_group import (
    ModernGroup,
    ModernGroupState,
    ReconcilingMember,
    assignment_state,
    subtract,
)
from kafkalog_broker.groups.modern.stale_epoch import stale_member_epoch
from kafkalog_broker.groups.offset_requests import CommittedPartition


@dataclass(frozen=True, slots=True)
class ConsumerMember(ReconcilingMember):
    """A member. `regex` is its subscription by regular expression, `assignor` its preferred server-side assignor."""

    regex: str | None = ""
    assignor: str | None = None


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A group in which every partition has at most one owner."""

    group_type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        self.owners = PartitionOwners()
        self.counts = _MemberCounts()
        super().__init__(group_id, ConsumerMember, self.owners, self.counts)
        self.regexes: dict[str, ResolvedRegex] = {}  # resolved regular expressions
        self.matched_topics: Counter[str] = Counter()  # number of resolved regular expressions that match each topic
        self.matched_generation = -1
        """Generation of the broker's topics when this process last resolved the regular expressions; -1 if never."""
        self.has_topics_metadata_record = False  # Kafka 4.0 writes this record

    @property
    def state(self) -> ModernGroupState:
        return assignment_state(self)

    @property
    def subscribed_regexes(self) -> Counter[str]:
        """Number of members that subscribe with each regular expression."""
        return self.counts.regexes

    @property
    def classic_members(self) -> int:
        """Number of members that use JoinGroup and SyncGroup."""
        return self.counts.classic_members

    def replay(self, record: GroupRecord) -> None:
        match record.kind:
            case RecordKind.TOPICS:
                self.has_topics_metadata_record = record.value is not None
            case RecordKind.REGEX:
                self._replay_regex(record.name, record.value)
            case _:
                super().replay(record)

    def _replay_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.pop(regex, None)
        if before is not None:
            subtract(self.matched_topics, before.topics)
        if resolved is not None:
            self.regexes[regex] = resolved
            self.matched_topics.update(resolved.topics)

    def identified_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member with this ID, and instance ID if that is given.

        Raises:
            BrokerError: unknown_member_id; fenced_instance_id if another member has the instance ID.
        """
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

    def supports_classic_protocols(self, protocols: Iterable[str]) -> bool:
        """Return whether all classic members support one of these protocols (assignment strategies)."""
        counts: Counter[str] = Counter()
        for member in self.members.values():
            if member.classic is not None:
                counts.update({name for name, _ in member.classic.protocols})
        return any(counts[name] == self.classic_members for name in protocols)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or regular expression, whether they exist or not."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics or topic in self.matched_topics

    def subscribed_regexes_after(
        self, leaving: Iterable[ConsumerMember], joining: Iterable[ConsumerMember] = ()
    ) -> Counter[str]:
        """Return how many members subscribe with each expression after some have left and others have joined."""
        regexes = self.subscribed_regexes.copy()
        regexes.subtract(member.regex for member in leaving if member.regex)
        regexes.update(member.regex for member in joining if member.regex)
        return +regexes

    def matched_topics_after(
        self, leaving: Iterable[ConsumerMember], joining: Iterable[ConsumerMember] = ()
    ) -> set[str]:
        """Return the topics that resolved expressions match after some members have left and others have joined."""
        regexes = self.subscribed_regexes_after(leaving, joining) if self.regexes else ()
        return {topic for regex in regexes if regex in self.regexes for topic in self.regexes[regex].topics}

    def is_free_for(self, member: ConsumerMember, topic_id: UUID, partition: int) -> bool:
        """Return whether no other member owns a partition."""
        return not self.owners.has_owner(topic_id, partition) or partition in member.pending_revocation.get(
            topic_id, ()
        )

    def waits_for_other_owners(self, member: ConsumerMember) -> bool:
        """Return whether another member still owns partitions of the target assignment of a member."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.owners.has_owner(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def assignment_epoch_of(self, member: ConsumerMember, partition: CommittedPartition) -> int:
        """Return the epoch in which a member was assigned a partition.

        Raises:
            BrokerError: See `stale_member_epoch`, if the member does not own the partition.
        """
        topic_id, index = partition.topic_id, partition.partition
        if topic_id is not None:
            for owned in (member.assigned, member.pending_revocation):
                epoch = owned.get(topic_id, {}).get(index)
                if epoch is not None:
                    return epoch
        raise stale_member_epoch(member, f"Partition {index} of {topic_id} is not assigned or pending revocation.")


class _MemberCounts:
    """Counts of classic members and of subscriptions by regular expression."""

    def __init__(self) -> None:
        self.classic_members = 0
        self.regexes: Counter[str] = Counter()

    def add(self, member: ConsumerMember) -> None:
        self.classic_members += member.classic is not None
        if member.regex:
            self.regexes[member.regex] += 1

    def discard(self, member: ConsumerMember) -> None:
        self.classic_members -= member.classic is not None
        if member.regex:
            subtract(self.regexes, (member.regex,))
