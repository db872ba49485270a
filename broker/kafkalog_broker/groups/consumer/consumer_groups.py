"""The consumer groups of one partition of __consumer_offsets, put together: what its owner asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE, assignment_of, parse_subscription
from kafkalog_broker.groups.classic.messages import (
    NO_GENERATION,
    NO_MEMBER,
    CommitRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncAnswer,
    SyncRequest,
    TransactionalCommit,
)
from kafkalog_broker.groups.consumer.changes import Change
from kafkalog_broker.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
)
from kafkalog_broker.groups.consumer.draft import Draft, remove_group
from kafkalog_broker.groups.consumer.group_store import GroupStore
from kafkalog_broker.groups.consumer.heartbeat_messages import (
    ConsumerHeartbeat,
    DescribedConsumerGroup,
    HeartbeatAnswer,
    check_static,
    describe,
)
from kafkalog_broker.groups.consumer.heartbeats import Heartbeats, check_room, note_member, return_static
from kafkalog_broker.groups.consumer.regexes import RegexUpdate
from kafkalog_broker.groups.consumer.sessions import Sessions, by_id, by_name, downgrade, may_downgrade_replacing

# Whether a member of a consumer group may commit or fetch offsets (ConsumerGroup.validateOffsetCommit, KIP-1251).

FIRST_VERSION = 9
"""First version of OffsetCommit for members with the consumer protocol."""


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[tuple[UUID | None, int]], version: int
) -> None:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION. An epoch
    before the member's is taken for partitions that it has had since then."""
    if epoch < 0 and not group.members:
        return  # an administrator, or a consumer that assigns itself
    member = group.member(member_id)
    if member.classic is None and version < FIRST_VERSION:
        raise BrokerError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    _check_epoch(member, epoch, partitions)


def check_transactional_commit(
    group: ConsumerGroup, member_id: str, epoch: int, instance_id: str | None,
    partitions: Iterable[tuple[UUID | None, int]],
) -> None:  # fmt: skip
    """Raises BrokerError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION. Producers before Kafka 2.5 name no member."""
    names_nobody = epoch == NO_GENERATION and member_id == NO_MEMBER and instance_id is None
    if names_nobody or (epoch < 0 and not group.members):
        return
    try:
        _check_epoch(group.member(member_id), epoch, partitions)
    except BrokerError as error:
        if error.code is not ErrorCode.stale_member_epoch:
            raise
        raise BrokerError(ErrorCode.illegal_generation, error.what) from None


def _check_epoch(member: ConsumerMember, epoch: int, partitions: Iterable[tuple[UUID | None, int]]) -> None:
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    for topic_id, partition in partitions:
        since = None if topic_id is None else member.epoch_of(topic_id, partition)
        if since is None:
            raise _stale(member, f"Partition {partition} of {topic_id} is not assigned or pending revocation.")
        if epoch < since:
            raise _stale(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {since} of partition {partition}.",
            )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return  # an administrator, or a client that does not say who it is
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _stale(member, f"The received member epoch {epoch} does not match the expected one {member.epoch}.")


def _stale(member: ConsumerMember, what: str) -> BrokerError:
    code = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    return BrokerError(code, what)


# Members of consumer groups that still speak JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848, migration).


class ClassicMembers:
    """Nobody waits here: a join is answered at once, and whoever is to join again learns it from its heartbeat."""

    def __init__(self, store: GroupStore, sessions: Sessions, heartbeats: Heartbeats) -> None:
        self._store = store
        self._sessions = sessions
        self._steps = heartbeats

    # ---- JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        """Raises BrokerError."""
        is_new = request.member_id == NO_MEMBER
        member_id = self._store.new_id() if is_new else request.member_id
        check_room(group, member_id, self._store.config.group_consumer_max_size)
        if request.protocol_type != PROTOCOL_TYPE or not group.supports(name for name, _ in request.protocols):
            raise BrokerError(
                ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported."
            )
        if is_new and request.group_instance_id is None and request.requires_known_member_id:
            return JoinAnswer(ErrorCode.member_id_required, member_id)
        draft = Draft(group.group_id)
        member = self._member(draft, group, request, member_id, is_new=is_new)
        updated = self._joined(draft, group, request, member)
        timeout_ms = request.rebalance_timeout_ms
        if group.group_id in self._store.groups:
            draft.then(lambda: self._expect_sync(group.group_id, updated, timeout_ms))
        self._store.commit(draft)
        return JoinAnswer(ErrorCode.none, updated.member_id, updated.epoch, PROTOCOL_TYPE, request.protocols[0][0])

    def _expect_sync(self, group_id: str, member: ConsumerMember, timeout_ms: int) -> None:
        if group_id in self._store.groups and member.classic is not None:
            self._sessions.begin(group_id, member.member_id, member.classic.session_timeout_ms)
            self._sessions.has_joined(group_id, member.member_id, timeout_ms)

    def _member(
        self, draft: Draft, group: ConsumerGroup, request: JoinRequest, member_id: str, *, is_new: bool
    ) -> ConsumerMember:
        instance = request.group_instance_id
        if instance is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        owner = group.static_member(instance)
        if not is_new:
            return check_static(owner, member_id, instance)
        if owner is None:
            return ConsumerMember(member_id)
        return return_static(draft, group, owner, member_id)

    def _joined(
        self, draft: Draft, group: ConsumerGroup, request: JoinRequest, member: ConsumerMember
    ) -> ConsumerMember:
        try:
            subscription = parse_subscription(request.protocols[0][1])
        except ValueError as error:
            raise BrokerError(ErrorCode.unknown_server_error, f"the subscription is malformed: {error}") from None
        owner = group.static_member(request.group_instance_id)
        replaces_last = owner is not None and may_downgrade_replacing(group, owner, self._store.config)
        updated = replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicMember(request.session_timeout_ms, request.protocols),
        )
        bump = note_member(draft, member, updated)
        bump |= self._steps.regexes.note(draft, group, member, updated, None) is not RegexUpdate.NONE
        epoch, homogeneous = self._steps.refresh(draft, group, member, updated, bump=bump)
        rebalance = replaces_last and group.assignment_epoch < epoch
        if replaces_last:
            target_epoch, target = group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id)
        else:
            target_epoch, target = self._steps.target(draft, group, epoch, member, updated, homogeneous=homogeneous)
        if not rebalance:
            owned = by_id(subscription.owned, self._store.topics)
            updated = self._steps.reconcile(
                draft, group, updated, target_epoch, target, owned, subscription_changed=bump
            )
        if replaces_last:
            stale = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
            downgrade(self._store, draft, group, joining=updated, reason=stale if rebalance else None)
        return updated

    # ---- SyncGroup, Heartbeat, LeaveGroup

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        """Raises BrokerError."""
        member = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation)
        assert member.classic is not None
        name, metadata = member.classic.protocols[0]
        for asked, known in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol, name)):
            if asked is not None and asked != known:
                raise BrokerError(
                    ErrorCode.inconsistent_group_protocol,
                    f"member {member.member_id} has joined with {known!r}, its request says {asked!r}",
                )
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.expect_join(group.group_id, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin "
                "to catch up.",
            )
        self._sessions.has_synced(group.group_id, member.member_id)
        self._sessions.begin(group.group_id, member.member_id, member.classic.session_timeout_ms)
        assigned = by_name({topic: tuple(epochs) for topic, epochs in member.assigned.items()}, self._store.topics)
        version = int.from_bytes(metadata[:2], "big")
        return SyncAnswer(ErrorCode.none, request.protocol_type, request.protocol, assignment_of(assigned, version))

    def heartbeat(self, group: ConsumerGroup, member_id: str, generation: int, instance_id: str | None) -> None:
        """Raises BrokerError, REBALANCE_IN_PROGRESS when the member has to join again."""
        member = _classic(group, member_id, instance_id)
        _check_generation(member, generation)
        assert member.classic is not None
        self._sessions.begin(group.group_id, member_id, member.classic.session_timeout_ms)
        freed = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_partitions(member)
        if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or freed:
            self._sessions.expect_join(group.group_id, member)
            raise BrokerError(
                ErrorCode.rebalance_in_progress, f"member {member_id} of group {group.group_id} has to join again"
            )

    def leave(self, group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Error codes, one for each member, in their order; also those with the consumer protocol, for administrators.
        Raises BrokerError."""
        codes, gone = [], {}
        for asked in leaving:
            try:
                if asked.group_instance_id is None:
                    member = group.member(asked.member_id)
                else:
                    owner = group.static_member(asked.group_instance_id)
                    named = owner.member_id if owner is not None and asked.member_id == NO_MEMBER else asked.member_id
                    member = check_static(owner, named, asked.group_instance_id)
            except BrokerError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
                gone[member.member_id] = member
        self._sessions.remove(group, list(gone.values()))
        return codes


def _classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    """Raises BrokerError (ILLEGAL_GENERATION)."""
    if member.epoch != generation:
        raise BrokerError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )


KIND = "consumer"
"""The type of these groups, and their protocol type."""


class ConsumerGroups:
    """`classic`: members of these groups that do not speak the consumer protocol yet."""

    def __init__(self, store: GroupStore, loaded: Sequence[Change] = ()) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._heartbeats = Heartbeats(store, self._sessions)
        self.classic = ClassicMembers(store, self._sessions, self._heartbeats)
        store.load(loaded)

    def begin(self) -> None:
        """Begin the time-outs of the members that were loaded."""
        for group in self._store.groups.values():
            self._sessions.begin_all(group)

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._store.groups.get(group_id)

    def all(self) -> list[ConsumerGroup]:
        return list(self._store.groups.values())

    def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """Raises BrokerError."""
        return self._heartbeats.handle(request)

    def list_groups(self) -> list[ListedGroup]:
        return [ListedGroup(group.group_id, KIND, group.state.value, KIND) for group in self._store.groups.values()]

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Never raises: errors are in the answer."""
        try:
            group = self._store.find(group_id)
        except BrokerError as error:
            return DescribedConsumerGroup(group_id, error=error.code, error_message=error.what)
        return describe(group, self._store.assignors[0], self._store.topics)

    def delete(self, group: ConsumerGroup) -> None:
        """Raises BrokerError (NON_EMPTY_GROUP)."""
        if group.state is not ConsumerGroupState.EMPTY:
            raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
        draft = Draft(group.group_id)
        remove_group(draft, group)
        draft.then(lambda: self._heartbeats.regexes.forget(group.group_id))
        self._store.commit(draft)

    def forget(self, group_id: str, member_ids: Sequence[str]) -> None:
        """It is a classic group by now, of these members."""
        self._sessions.forget(group_id, member_ids)
        self._heartbeats.regexes.forget(group_id)

    # ---- offsets

    def check_commit(self, group: ConsumerGroup, request: CommitRequest) -> None:
        """Raises BrokerError (consumer_commits.check_commit)."""
        partitions = ((part.topic_id, part.partition) for part in request.partitions)
        version = FIRST_VERSION if request.knows_group_id_not_found else 0
        check_commit(group, request.member_id, request.generation, partitions, version)

    def check_transactional_commit(self, group: ConsumerGroup, commit: TransactionalCommit) -> None:
        """Raises BrokerError (consumer_commits.check_transactional_commit)."""
        partitions: list[tuple[UUID | None, int]] = [(part.topic_id, part.partition) for part in commit.partitions]
        check_transactional_commit(group, commit.member_id, commit.generation, commit.group_instance_id, partitions)
