"""Reconciling, which consumer groups and streams groups do and share groups do not: a partition or task has one owner,
who gives it up before the next one gets it; members commit offsets in their epoch; and a classic group that is empty
becomes one of theirs (Kafka's CurrentAssignmentBuilder, ConsumerGroup.validateOffsetCommit, KIP-1251).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

from kafkalog_broker.coordinator.coordinator_timer import Commit, CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import GroupState
from kafkalog_broker.groups.classic.classic_group_manager import ClassicGroupManager
from kafkalog_broker.groups.classic.messages import NO_GENERATION, NO_MEMBER, CommitRequest, CommittedPartition
from kafkalog_broker.groups.classic.offset_records import group_key
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_manager import (
    GroupChanges,
    HeartbeatRequest,
    ModernGroupManager,
    Reported,
    TypeOf,
    check_epoch,
)
from kafkalog_broker.groups.modern.group_records import (
    ClassicMetadata,
    GroupRecord,
    GroupType,
    MemberState,
    Owned,
    Partitions,
    RecordKind,
)
from kafkalog_broker.groups.modern.modern_group import ModernGroup, ModernGroupState, ModernMember

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcilingMember(ModernMember):
    """pending_revocation: what it has not given up yet. classic: None unless it speaks JoinGroup."""

    rebalance_timeout_ms: int = -1
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def at_epoch(self, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> Self:
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )


R = TypeVar("R", bound=ReconcilingMember)


class ReconcilingGroup(ModernGroup[R]):
    @property
    def state(self) -> ModernGroupState:
        if not self.members:
            return ModernGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ModernGroupState.STABLE
        return ModernGroupState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        raise NotImplementedError

    def assigned_since(self, member: R, partition: CommittedPartition) -> int:
        """The epoch in which a member got a partition. Raises BrokerError where it has it not, see `stale`."""
        raise NotImplementedError

    def is_free_for(self, member: R, key: Any, partition: int) -> bool:
        """True if a partition, or task, can be given to a member: nobody else has it any more."""
        raise NotImplementedError

    # ---- the next step of a member towards its target assignment

    def stepped(
        self, member: R, target_epoch: int, target: Partitions, reported: Reported | None, next_epoch: int
    ) -> R:
        """The member one step further; itself where it is to be, or where it has not given up yet what it has to.

        A member first gives up what it is to lose, and stays in its epoch until it has said so; it gets what is new to
        it when nobody else has that any more. next_epoch: of a member that has given up something and is to give up
        more. Raises BrokerError (FENCED_MEMBER_EPOCH) in a state that is not known here.
        """
        match member.state:
            case MemberState.STABLE if member.epoch == target_epoch:
                return member
            case MemberState.UNREVOKED_PARTITIONS if still_has(member.pending_revocation, reported):
                return member
            case MemberState.UNKNOWN if reported is None or reported:
                what = "tasks" if self.group_type is GroupType.STREAMS else "partitions"
                raise BrokerError(
                    ErrorCode.fenced_member_epoch,
                    f"The {self.group_type.value} group member is in a unknown state. The member must abandon all its "
                    f"{what} and rejoin.",
                )
        assigned: dict[Any, dict[int, int]] = {}
        revoked: dict[Any, dict[int, int]] = {}
        gained: dict[Any, list[int]] = {}
        waits = False
        for key in dict.fromkeys((*target, *member.assigned)):
            due = frozenset(target.get(key, ()))
            held = member.assigned.get(key, {})
            kept = {partition: since for partition, since in held.items() if partition in due}
            if kept:
                assigned[key] = kept
            if len(kept) < len(held):
                revoked[key] = {partition: since for partition, since in held.items() if partition not in due}
            if len(kept) == len(due):
                continue
            for partition in sorted(due.difference(kept)):
                if self.is_free_for(member, key, partition):
                    gained.setdefault(key, []).append(partition)
                else:
                    waits = True
        if revoked and still_has(revoked, reported):
            epoch = {MemberState.UNKNOWN: target_epoch, MemberState.UNREVOKED_PARTITIONS: next_epoch}
            return member.at_epoch(
                epoch.get(member.state, member.epoch), MemberState.UNREVOKED_PARTITIONS, assigned, revoked
            )
        for key, partitions in gained.items():
            assigned.setdefault(key, {}).update(dict.fromkeys(partitions, target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return member.at_epoch(target_epoch, state, assigned, {})

    # ---- whether a member may commit or fetch offsets

    def check_commit(self, request: CommitRequest) -> None:
        """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION. An epoch
        before the member's is taken for partitions that it has had since then."""
        in_transaction = request.producer is not None
        if request.generation < 0 and not self.members:
            return  # an administrator, or a consumer that assigns itself
        names_nobody = request.member_id == NO_MEMBER and request.group_instance_id is None
        if in_transaction and request.generation == NO_GENERATION and names_nobody:
            return  # producers before Kafka 2.5 name no member
        member = self.member(request.member_id)
        if not (in_transaction or member.classic is not None or request.knows_group_id_not_found):
            raise BrokerError(
                ErrorCode.unsupported_version,
                f"OffsetCommit version 9 or above must be used by members using the {self.group_type.value} group "
                "protocol",
            )
        try:
            self._check_commit_epoch(member, request)
        except BrokerError as error:
            if in_transaction and error.code is ErrorCode.stale_member_epoch:
                raise BrokerError(ErrorCode.illegal_generation, error.what) from None
            raise

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return  # an administrator, or a client that does not say who it is
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise stale(member, f"The received member epoch {epoch} does not match the expected one {member.epoch}.")

    def _check_commit_epoch(self, member: R, request: CommitRequest) -> None:
        epoch = request.generation
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
        for part in request.partitions:
            since = self.assigned_since(member, part)
            if epoch < since:
                raise stale(
                    member,
                    f"Received member epoch {epoch} is older than assignment epoch {since} of partition "
                    f"{part.partition}.",
                )


def stale(member: ReconcilingMember, what: str) -> BrokerError:
    return BrokerError(ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation, what)


def still_has(revoked: Owned, reported: Reported | None) -> bool:
    """True if a member has something of what it was asked to give up. Who says nothing still has it."""
    if reported is None:
        return True
    return any(
        partition in revoked[key] for key, partitions in reported.items() if key in revoked for partition in partitions
    )


# ---- managers

RG = TypeVar("RG", bound=ReconcilingGroup[Any])


class ReconcilingGroupManager(ModernGroupManager[RG, R], Generic[RG, R]):
    def __init__(
        self,
        context: GroupContext,
        timer: CoordinatorTimer,
        commit: Commit,
        type_of: TypeOf,
        classic: ClassicGroupManager,
    ) -> None:
        super().__init__(context, timer, commit, type_of)
        self.classic = classic

    def load(self, records: Iterable[GroupRecord]) -> None:
        records = list(records)
        # A group that has lost its own record is being removed: Kafka writes the tombstones of a group in one batch.
        existing = {record.group_id for record in records if record.kind is RecordKind.EPOCH}
        for group_id in {record.group_id for record in records} - existing:
            log.warning("group %.200r has no epoch in the log and is left out", group_id)
        super().load(record for record in records if record.group_id in existing)
        for group in self.groups.values():
            for member in group.members.values():
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self.reconciling(group.group_id, member)

    def reconciling(self, group_id: str, member: R) -> None:
        """A member that has to give partitions up does so within its rebalance timeout; classic ones have no timer."""
        key, member_id, epoch = ("rebalance", group_id, member.member_id), member.member_id, member.epoch
        if member.classic is not None:
            return
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timer.cancel(key)
            return
        timeout_ms = member.rebalance_timeout_ms

        def check() -> None:
            group = self.groups.get(group_id)
            if group is not None and member_id in group.members and group.members[member_id].epoch == epoch:
                why = f"it failed to transition from epoch {epoch} within {timeout_ms}ms"
                self.expire(group_id, member_id, why)

        self.timer.schedule(key, timeout_ms, check)

    def group_for(self, result: GroupChanges, *, joins: bool) -> RG:
        classic = self.classic.groups.get(result.group_id)
        if joins and classic is not None and classic.state is GroupState.EMPTY and result.group_id not in self.groups:
            result.records.append((group_key(result.group_id), None))
            result.then(lambda: self.classic.forget(classic))
            return self.group_class(result.group_id)
        return super().group_for(result, joins=joins)

    def checked(self, member: R, request: HeartbeatRequest) -> R:
        """The member in whose epoch a heartbeat is, or in the one before if it has only what it was given; who says
        nothing does not. Raises BrokerError (FENCED_MEMBER_EPOCH)."""
        has_only_its_own = request.owned is not None and all(
            partition in member.assigned.get(key, ())
            for key, partitions in request.owned.items()
            for partition in partitions
        )
        check_epoch(self.group_class.group_type, member, request.member_epoch, takes_previous=has_only_its_own)
        return member
