"""The consumer groups (KIP-848) of one partition of __consumer_offsets (Kafka's GroupMetadataManager).

Beyond what groups have in common (group_manager.py): static members, regular expressions, partitions that members have
to give up first, and classic groups that become consumer groups and back.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import GroupState
from kafkalog_broker.groups.consumer import regexes
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, without_unsubscribed
from kafkalog_broker.groups.consumer.migration import downgrade, may_downgrade, upgraded
from kafkalog_broker.groups.consumer.reconciling import ReconcilingGroupManager
from kafkalog_broker.groups.modern.group_manager import (
    GroupChanges,
    HeartbeatRequest,
    HeartbeatResponse,
    MemberResult,
    check_not_blank,
    put_group_removal,
)
from kafkalog_broker.groups.modern.group_records import GroupType, Partitions, RecordKind, ResolvedRegex
from kafkalog_broker.groups.modern.group_settings import GroupSettings, consumer_group_settings
from kafkalog_broker.groups.modern.modern_group import LEAVING, LEAVING_STATIC

log = logging.getLogger(__name__)

_SHORTEST_REFRESH_MS = 10_000

ConsumerResult = MemberResult[ConsumerGroup, ConsumerMember]
MayDescribe = Callable[[str], bool] | None


@dataclass(slots=True)
class ConsumerHeartbeatRequest(HeartbeatRequest):
    """may_describe: whether the sender may see a topic, which its regular expression might match. needs_member_id: the
    client makes its id (v1, KIP-1082)."""

    rebalance_timeout_ms: int | None = None
    regex: str | None = None
    assignor: str | None = None
    needs_member_id: bool = True
    may_describe: MayDescribe = None

    @property
    def is_full(self) -> bool:
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms is not None and subscribes and self.owned is not None


class ConsumerGroupManager(ReconcilingGroupManager[ConsumerGroup, ConsumerMember]):
    group_class = ConsumerGroup

    def settings(self, group_id: str) -> GroupSettings:
        return consumer_group_settings(self.context.config, self.context.overrides(group_id))

    # ---- heartbeats

    def check_request(self, request: ConsumerHeartbeatRequest) -> None:
        epoch, assignors = request.member_epoch, self.context.config.group_consumer_assignors
        names_member = request.needs_member_id or epoch > 0 or epoch == LEAVING
        check_not_blank((
            (request.member_id if names_member else None, "MemberId"), (request.group_id, "GroupId"),
            (request.instance_id, "InstanceId"), (request.rack_id, "RackId"),
        ))  # fmt: skip
        invalid = None
        if epoch == 0 and request.rebalance_timeout_ms is None:
            invalid = "RebalanceTimeoutMs must be provided in first request."
        elif epoch == 0 and (request.owned is None or request.owned):
            invalid = "TopicPartitions must be empty when (re-)joining."
        elif epoch == 0 and request.topics is None and request.regex is None:
            invalid = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        elif epoch == LEAVING_STATIC and request.instance_id is None:
            invalid = "InstanceId can't be null."
        elif epoch < LEAVING_STATIC:
            invalid = "MemberEpoch is invalid."
        if invalid is not None:
            raise BrokerError(ErrorCode.invalid_request, invalid)
        if request.assignor is not None and request.assignor not in assignors:
            raise BrokerError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
            )

    def group_for(self, result: GroupChanges, *, joins: bool) -> ConsumerGroup:
        group_id = result.group_id
        classic = self.classic.groups.get(group_id)
        if classic is None or classic.state is GroupState.EMPTY or not joins or group_id in self.groups:
            return super().group_for(result, joins=joins)
        group = upgraded(self.context, result, classic)
        result.then(lambda: self.classic.forget(classic))
        for member in group.members.values():
            assert member.classic is not None
            result.then(partial(self.begin_session, group_id, member.member_id, member.classic.session_timeout_ms))
        return group

    def member_for(self, result: ConsumerResult, request: ConsumerHeartbeatRequest) -> ConsumerMember:
        group, joins, instance = result.group, request.member_epoch == 0, request.instance_id
        member_id = request.member_id or self.context.new_id()
        if instance is not None and joins:
            owner = group.static_member(instance)
            if owner is None:
                return group.members.get(member_id) or ConsumerMember(member_id)
            if owner.classic is None and owner.epoch != LEAVING_STATIC:
                raise BrokerError(
                    ErrorCode.unreleased_instance_id,
                    f"Static member {member_id} with instance id {instance} cannot join the group because the instance "
                    f"id is owned by {owner.member_id} member.",
                )
            return put_returned_member(result, group, owner, member_id)
        if instance is None and joins and member_id not in group.members:
            return ConsumerMember(member_id)
        return self.checked(group.identified(member_id, instance), request)

    def updated_member(self, member: ConsumerMember, request: ConsumerHeartbeatRequest) -> ConsumerMember:
        updated = super().updated_member(member, request)
        return updated if updated.classic is None else replace(updated, classic=None)

    def next_epoch(self, result: ConsumerResult, request: ConsumerHeartbeatRequest) -> int:
        bump, regex_changed = self.put_regex(result, request.may_describe)
        epoch = self.bump_epoch(result, bump=bump or result.anew)
        result.anew |= regex_changed
        return epoch

    def reconciled(self, result: ConsumerResult, target_epoch: int, target: Partitions) -> ConsumerMember:
        """anew: what it does not subscribe to any more is taken from it at once, also while it waits."""
        group, member, reported = result.group, result.updated, result.reported
        topics = map(self.context.topics.get, group.topics_of(member))
        subscribed = {topic.id for topic in topics if topic is not None}
        due = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
        updated = group.stepped(member, target_epoch, due, reported, next_epoch=member.epoch)
        return without_unsubscribed(member, reported, subscribed) if result.anew and updated is member else updated

    def bump_epoch(self, result: ConsumerResult, *, bump: bool) -> int:
        if result.group.has_topics_record:
            result.put(RecordKind.TOPICS, "", None)
        return super().bump_epoch(result, bump=bump)

    def assignor(self, group: ConsumerGroup, members: Collection[ConsumerMember]) -> str:
        counts = Counter(member.assignor for member in members if member.assignor is not None)
        default = self.context.config.group_consumer_assignors[0]
        return max(sorted(counts), key=lambda name: counts[name], default=default)

    def assignable(self, group: ConsumerGroup, topic_id: UUID) -> Sequence[int]:
        topic = self.context.topics.by_id(topic_id)
        return range(0 if topic is None else topic.partitions)

    # ---- members that leave

    def leave(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.group(request.group_id)
        member = group.identified(request.member_id, request.instance_id)
        if request.member_epoch != LEAVING_STATIC:
            return super().leave(request)
        result = GroupChanges(GroupType.CONSUMER, group.group_id)
        # What it has counts as assigned at epoch 0: it may commit under the id that it will come back with.
        assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
        result.put_current(replace(member, epoch=LEAVING_STATIC, assigned=assigned, pending_revocation={}))
        self.commit(result)
        return HeartbeatResponse(request.member_id, request.member_epoch)

    def put_removal(self, result: GroupChanges, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        leaving = {member.member_id for member in members}
        if may_downgrade(group, leaving, self.context.config):
            reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
            self.downgrade(result, group, leaving=leaving, reason=reason)
            return
        for regex in group.subscribed_regexes.keys() - group.regexes_after(members).keys():
            result.put(RecordKind.REGEX, regex, None)
        super().put_removal(result, group, members)

    def downgrade(
        self, result: GroupChanges, group: ConsumerGroup, *, leaving: Collection[str] = (),
        joining: ConsumerMember | None = None, reason: str | None,
    ) -> None:  # fmt: skip
        """The classic group that this one becomes, without those that leave. joining: a classic static member whose
        records are in `result`, in the place of the one that has its instance id. reason: why it begins with a
        rebalance; None: it does not."""
        replaced = None if joining is None else group.static_member(joining.instance_id)
        renamed = {} if replaced is None or joining is None else {replaced.member_id: joining.member_id}
        put_group_removal(result, group, renamed)
        classic = downgrade(self.context, result, group, leaving=leaving, joining=joining)

        def done() -> None:
            self.forget(group)
            self.cancel_timers(group.group_id, classic.members)
            self.classic.take_over(classic, reason)
            log.info("group %.200r: the consumer group has become a classic group", group.group_id)

        result.then(done)

    # ---- regular expressions, resolved by the broker (Kafka's TopicRegexResolver, KIP-848)
    #
    # A new expression is checked at once and matched in the background; what it matched becomes a record, and the
    # group's epoch rises. All expressions of a group are matched again when there are new topics, ten seconds after the
    # last time at the earliest, and every group.consumer.regex.refresh.interval.ms.

    def put_regex(self, result: ConsumerResult, may_describe: MayDescribe) -> tuple[bool, bool]:
        """Two answers: whether a member's expression is another one, of which the topics are known already, or none
        any more; and whether it is another one. Raises BrokerError (INVALID_REGULAR_EXPRESSION)."""
        group, member, updated = result.group, result.member, result.updated
        old, new = member.regex, updated.regex
        is_new = is_resolved = False
        if old != new:
            if old and group.subscribed_regexes[old] == 1:
                result.put(RecordKind.REGEX, old, None)
            if new and not group.subscribed_regexes[new]:
                regexes.check(new)
                is_new = True
            else:
                is_resolved = bool((new and new in group.regexes) or (old and not new))
        if is_new or group.subscribed_regexes:
            subscribed = sorted(group.regexes_after([member], [updated]))
            if subscribed and self._resolving_is_due(group, subscribed, is_new=is_new):
                result.then(lambda: self._resolve(group.group_id, subscribed, may_describe))
        return is_resolved, old != new

    def _resolving_is_due(self, group: ConsumerGroup, subscribed: Sequence[str], *, is_new: bool) -> bool:
        if group.is_resolving:
            return False
        if not group.regexes:
            return True
        age_ms = self.context.clock.now_ms() - next(iter(group.regexes.values())).timestamp_ms
        return age_ms > _SHORTEST_REFRESH_MS and (
            is_new
            or len(subscribed) != len(group.regexes)
            or group.matched_version != self.context.topics.created_generation
            or age_ms > self.context.config.group_consumer_regex_refresh_interval_ms
        )

    def _resolve(self, group_id: str, subscribed: list[str], may_describe: MayDescribe) -> None:
        group, topics, now_ms = self.groups.get(group_id), self.context.topics, self.context.clock.now_ms()
        version, created, names = topics.generation, topics.created_generation, topics.topics
        if group is None:
            return
        group.is_resolving = True

        def done(matched: Mapping[str, Iterable[str]] | Exception) -> None:
            group.is_resolving = False
            if isinstance(matched, Exception) or self.groups.get(group_id) is not group:
                return  # the next heartbeat tries again
            resolved = {}
            for regex, matching in matched.items():
                visible = frozenset(name for name in matching if may_describe is None or may_describe(name))
                resolved[regex] = ResolvedRegex(visible, version, now_ms)
            try:
                self._use_resolved(group, resolved)
                group.matched_version = created
            except BrokerError as error:  # the next heartbeat tries again: nothing is resolved
                log.warning("group %.200r: what its expressions match could not be written: %s", group_id, error)

        self.context.background(lambda: regexes.matches(subscribed, names), done)

    def _use_resolved(self, group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex]) -> None:
        group_id, present, bump = group.group_id, dict(group.regexes), False
        result = GroupChanges(GroupType.CONSUMER, group_id)
        for regex, new in resolved.items():
            if group.subscribed_regexes[regex]:
                before = present.get(regex)
                bump |= (before.topics if before is not None else frozenset()) != new.topics
                present[regex] = new
                result.put(RecordKind.REGEX, regex, new)
        names = {*group.names, *(name for regex in present.values() for name in regex.topics)}
        metadata_hash = self.context.metadata_hash(names)
        if bump or metadata_hash != group.metadata_hash:
            result.put(RecordKind.EPOCH, "", (group.epoch + 1, metadata_hash))
            log.info("group %.200r: epoch %d, its expressions match other topics", group_id, group.epoch + 1)
        self.commit(result)


def put_returned_member(
    result: GroupChanges, group: ConsumerGroup, owner: ConsumerMember, member_id: str
) -> ConsumerMember:
    """A static member is back, under another member id, with the assignment that it had."""
    member = replace(owner, member_id=member_id, epoch=0, previous_epoch=0)
    result.remove_member(owner.member_id)
    result.put_member(member)
    result.put(RecordKind.TARGET, member_id, group.target.get(owner.member_id, {}))
    result.put_current(member)
    return member
