"""A consumer group in memory (Kafka's ConsumerGroup), and the next step of a member (CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Self
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import NO_GENERATION, NO_MEMBER, CommitRequest, TransactionalCommit
from kafkalog_broker.groups.modern.group_manager import Reported
from kafkalog_broker.groups.modern.group_records import (
    ClassicMetadata,
    GroupRecord,
    GroupType,
    MemberState,
    Owned,
    Partitions,
    RecordKind,
    ResolvedRegex,
)
from kafkalog_broker.groups.modern.modern_group import ModernGroup, ModernGroupState, ModernMember, add_count


@dataclass(frozen=True, slots=True)
class ConsumerMember(ModernMember):
    """A member of a consumer group. `classic`: None for one that speaks the consumer protocol."""

    rebalance_timeout_ms: int = -1
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def at_epoch(self, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> ConsumerMember:
        """On to the next epoch, or the same again."""
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """Every partition has one owner at any time."""

    group_type = GroupType.CONSUMER
    member_class = ConsumerMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}
        """Expressions that have been resolved."""
        self.has_topics_record = False
        """Kafka 4.0 left the topics' metadata in the log."""
        self.classic_members = 0
        self.regex_names: Counter[str] = Counter()
        """How many resolved expressions match a topic."""
        self.subscribed_regexes: Counter[str] = Counter()
        self._owner_epochs: dict[UUID, dict[int, int]] = {}

    @property
    def state(self) -> ModernGroupState:
        if not self.members:
            return ModernGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ModernGroupState.STABLE
        return ModernGroupState.RECONCILING

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

    def own_records(self) -> Iterable[tuple[RecordKind, str]]:
        return [*((RecordKind.REGEX, regex) for regex in self.regexes), (RecordKind.TOPICS, "")]

    # ---- owners of partitions

    def _count(self, member: ConsumerMember, by: int) -> None:
        super()._count(member, by)
        self.classic_members += by * (member.classic is not None)
        if member.regex:
            add_count(self.subscribed_regexes, member.regex, by)
        for owned in (member.assigned, member.pending_revocation):
            if by > 0:
                self._own(owned, member.epoch)
            else:
                self._disown(owned, member.epoch)

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

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """True if others still have what a member is to get."""
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

    # ---- whether a member may commit or fetch offsets (ConsumerGroup.validateOffsetCommit, KIP-1251)

    def check_commit(self, request: CommitRequest) -> None:
        """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION. An epoch
        before the member's is taken for partitions that it has had since then."""
        if request.generation < 0 and not self.members:
            return  # an administrator, or a consumer that assigns itself
        member = self.member(request.member_id)
        if member.classic is None and not request.knows_group_id_not_found:
            raise BrokerError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        _check_commit_epoch(member, request)

    def check_transactional_commit(self, commit: TransactionalCommit) -> None:
        """Raises BrokerError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION. Producers before Kafka 2.5 name no member."""
        names_nobody = commit.member_id == NO_MEMBER and commit.group_instance_id is None
        if (commit.generation == NO_GENERATION and names_nobody) or (commit.generation < 0 and not self.members):
            return
        try:
            _check_commit_epoch(self.member(commit.member_id), commit)
        except BrokerError as error:
            if error.code is not ErrorCode.stale_member_epoch:
                raise
            raise BrokerError(ErrorCode.illegal_generation, error.what) from None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
        if member_id is None and epoch < 0:
            return  # an administrator, or a client that does not say who it is
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(member, f"The received member epoch {epoch} does not match the expected one {member.epoch}.")


def _check_commit_epoch(member: ConsumerMember, request: CommitRequest | TransactionalCommit) -> None:
    epoch = request.generation
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    for topic_id, partition in ((part.topic_id, part.partition) for part in request.partitions):
        since = None
        for owned in (member.pending_revocation, member.assigned):
            since = since if topic_id is None else owned.get(topic_id, {}).get(partition, since)
        if since is None:
            raise _stale(member, f"Partition {partition} of {topic_id} is not assigned or pending revocation.")
        if epoch < since:
            raise _stale(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {since} of partition {partition}.",
            )


def _stale(member: ConsumerMember, what: str) -> BrokerError:
    code = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    return BrokerError(code, what)


# ---- the next step of a member towards its target assignment
#
# A member first gives up what it is to lose, and stays in its epoch until it has said so; it gets what is new to it
# when nobody else has that any more.


def reconciled(
    group: ConsumerGroup, member: ConsumerMember, target_epoch: int, target: Partitions, reported: Reported | None, *,
    subscribed: Collection[UUID], subscription_changed: bool,
) -> ConsumerMember:  # fmt: skip
    """The member one step further, or itself where it has to wait. reported: what it says it has; None: nothing was
    said. subscribed: topics that it subscribes to and that exist. subscription_changed: what it does not subscribe to
    any more is taken from it at once.

    Raises BrokerError (FENCED_MEMBER_EPOCH) in a state that is not known here.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return _without_unsubscribed(member, reported, subscribed) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.pending_revocation, reported):
            return _without_unsubscribed(member, reported, subscribed) if subscription_changed else member
        case MemberState.UNKNOWN if reported is None or reported:
            raise BrokerError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )
    assigned: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    gained: dict[UUID, list[int]] = {}
    waits = False
    for topic in dict.fromkeys((*target, *member.assigned)):
        due = frozenset(target.get(topic, ()) if topic in subscribed else ())
        held = member.assigned.get(topic, {})
        kept = {partition: since for partition, since in held.items() if partition in due}
        if kept:
            assigned[topic] = kept
        if len(kept) < len(held):
            revoked[topic] = {partition: since for partition, since in held.items() if partition not in due}
        if len(kept) == len(due):
            continue
        own = member.pending_revocation.get(topic, {})
        for partition in sorted(due.difference(kept)):
            if group.has_owner(topic, partition) and partition not in own:
                waits = True
            else:
                gained.setdefault(topic, []).append(partition)
    if revoked and _still_has(revoked, reported):
        epoch = target_epoch if member.state is MemberState.UNKNOWN else member.epoch
        return member.at_epoch(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    for topic, partitions in gained.items():
        assigned.setdefault(topic, {}).update(dict.fromkeys(partitions, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.at_epoch(target_epoch, state, assigned, {})


def _still_has(revoked: Owned, reported: Reported | None) -> bool:
    """True if a member has something of what it was asked to give up. Who says nothing still has it."""
    if reported is None:
        return True
    return any(
        partition in revoked[topic] for topic, partitions in reported.items() if topic in revoked
        for partition in partitions
    )  # fmt: skip


def _without_unsubscribed(
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
    if _still_has(pending, reported):
        return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    return replace(member, previous_epoch=member.epoch, assigned=assigned)  # it has given them up already
