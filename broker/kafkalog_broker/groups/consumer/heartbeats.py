"""ConsumerGroupHeartbeat: a member joins, goes on, or leaves (Kafka's GroupMetadataManager.consumerGroupHeartbeat)."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from uuid import UUID

from kafkalog_broker.coordinator.runtime import MOST_NAMES
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group import GroupState
from kafkalog_broker.groups.classic.offset_records import group_key
from kafkalog_broker.groups.consumer.assignors import assign_target, may_assign
from kafkalog_broker.groups.consumer.changes import EpochValue, Kind
from kafkalog_broker.groups.consumer.consumer_group import (
    LEAVING,
    LEAVING_STATIC,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    is_homogeneous,
)
from kafkalog_broker.groups.consumer.draft import Draft, put_current, put_member, replace_member
from kafkalog_broker.groups.consumer.group_store import GroupStore
from kafkalog_broker.groups.consumer.heartbeat_messages import (
    NOT_SAID,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    Reported,
    Target,
    check_epoch,
    check_released,
    check_request,
    check_static,
    reconciled,
)
from kafkalog_broker.groups.consumer.regexes import Regexes, RegexUpdate
from kafkalog_broker.groups.consumer.sessions import Sessions, upgrade
from kafkalog_broker.groups.consumer.topics_view import TopicsView

# Target assignments of large groups, made in a thread: no heartbeat holds the others up (as KIP-1263 has it).
#
# Members go on with the target assignment that there is, until the next one is written.

_MEMBER_COSTS = 10  # partitions
_AT_ONCE = 3_000
"""Partitions, and members counted as ten: some 3 ms."""


def takes_long(group: ConsumerGroup, updated: ConsumerMember, topics: TopicsView) -> bool:
    """True if an assignment is not to be made while others wait."""
    cost = _MEMBER_COSTS * len(group.members)
    for name in {*group.names, *group.regex_names, *updated.topics}:
        topic = topics.by_name(name)
        cost += 0 if topic is None else topic.partitions
        if cost > _AT_ONCE:
            return True
    return cost > _AT_ONCE


class Assigning:
    """Assignments that run in threads, one at a time for each group."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._groups: set[str] = set()

    def begin(self, group_id: str) -> None:
        group = self._store.groups.get(group_id)
        if group is None or group_id in self._groups or not group.members:
            return
        self._groups.add(group_id)
        seen, store, now_ms = group.snapshot(), self._store, self._store.now_ms()
        homogeneous = is_homogeneous(group.subscribed_regexes, group.names, group.regex_names, len(group.members))
        name = group.preferred_assignor(None, None) or store.assignors[0]
        anybody = next(iter(seen.members.values()))

        def compute() -> Draft:
            draft = Draft(group_id)
            assign_target(
                draft, seen, seen.epoch, anybody, name, homogeneous=homogeneous, topics=store.topics, now_ms=now_ms
            )
            return draft

        store.background(compute, lambda found: self._done(group, seen, found))

    def _done(self, began: ConsumerGroup, seen: ConsumerGroup, found: Draft | Exception) -> None:
        group_id = began.group_id
        self._groups.discard(group_id)
        group = self._store.groups.get(group_id)
        if group is not began or isinstance(found, Exception):  # a topic may have gone; the next heartbeat begins again
            return
        if group.assignment_epoch >= seen.epoch or group.static_members != seen.static_members:
            return  # one of this epoch or later was made meanwhile; or a member has another id, without a new epoch
        draft = Draft(group_id)
        for change in found.changes():
            if change.kind is Kind.TARGET_EPOCH or change.name in group.members:  # others have left meanwhile
                draft.change(change.kind, change.name, change.value)
        try:
            self._store.commit(draft)
        except BrokerError as error:
            log.warning("group %.200r: the target assignment could not be written: %s", group_id, error)


log = logging.getLogger(__name__)


class Heartbeats:
    """The requests of members that speak the consumer protocol, and the steps that classic ones have in common."""

    def __init__(self, store: GroupStore, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self.regexes = Regexes(store)
        self._assigning = Assigning(store)

    def handle(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """Raises BrokerError."""
        check_request(request, self._store.assignors)
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            return self._leave(request)
        return self._go_on(request)

    # ---- members that go on

    def _go_on(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        store, joins = self._store, request.member_epoch == 0
        draft = Draft(request.group_id)
        group = self._group(draft, joins)
        check_room(group, request.member_id, store.config.group_consumer_max_size)
        member = self._member(draft, group, request, request.member_id or store.new_id())
        updated = _with_news(member, request)
        names_changed = note_member(draft, member, updated)
        regex = self.regexes.note(draft, group, member, updated, request.may_describe)
        bump = names_changed or regex is RegexUpdate.RESOLVED
        epoch, homogeneous = self.refresh(draft, group, member, updated, bump=bump)
        target_epoch, target = self.target(draft, group, epoch, member, updated, homogeneous=homogeneous)
        updated = self.reconcile(
            draft, group, updated, target_epoch, target, request.owned,
            subscription_changed=names_changed or regex is not RegexUpdate.NONE,
        )  # fmt: skip
        settings = store.settings(group.group_id)
        draft.then(lambda: self._sessions.begin(group.group_id, updated.member_id, settings.session_timeout_ms))
        store.commit(draft)
        tells = joins or request.is_full or member.assigned != updated.assigned
        assignment = {topic: tuple(epochs) for topic, epochs in updated.assigned.items()} if tells else None
        return HeartbeatAnswer(updated.member_id, updated.epoch, settings.heartbeat_interval_ms, assignment)

    def _group(self, draft: Draft, creates: bool) -> ConsumerGroup:
        """The group, new ones and those that a classic group becomes included. Raises BrokerError
        (GROUP_ID_NOT_FOUND)."""
        store, group_id = self._store, draft.group_id
        group = store.groups.get(group_id)
        if group is not None:
            return group
        classic = store.classic.groups.get(group_id)
        if classic is None:
            if not creates:
                raise BrokerError(ErrorCode.group_id_not_found, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id)
        if not creates:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        if classic.state is GroupState.EMPTY:
            draft.record((group_key(group_id), None))
            draft.then(lambda: store.classic.forget(classic))
            return ConsumerGroup(group_id)
        made = upgrade(store, draft, classic)
        for member in made.members.values():  # they are heard of again, or put out
            assert member.classic is not None
            begin = partial(self._sessions.begin, group_id, member.member_id, member.classic.session_timeout_ms)
            draft.then(begin)
        return made

    def _member(self, draft: Draft, group: ConsumerGroup, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """The member as it was, a new one before it has said anything. Raises BrokerError."""
        joins, instance = request.member_epoch == 0, request.instance_id
        if instance is None:
            member = ConsumerMember(member_id) if joins and member_id not in group.members else group.member(member_id)
            check_epoch(member, request.member_epoch, request.owned)
            return member
        owner = group.static_member(instance)
        if not joins:
            member = check_static(owner, member_id, instance)
            check_epoch(member, request.member_epoch, request.owned)
            return member
        if owner is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if owner.classic is None:
            check_released(owner, member_id, instance)
        return return_static(draft, group, owner, member_id)

    # ---- the steps

    def refresh(
        self, draft: Draft, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember, *, bump: bool
    ) -> tuple[int, bool]:
        """The group's epoch, the next one where the subscriptions or their topics have changed; and whether all
        subscribe to the same."""
        version = self._store.topics.version
        if not bump and group.seen_topics_version == version:
            regexes, names, regex_names = group.subscribed_regexes, group.names, group.regex_names
            return group.epoch, is_homogeneous(regexes, names, regex_names, len(group.members))
        names, regexes, regex_names = _subscriptions(group, member, updated)
        if len(names) > MOST_NAMES and not updated.topics <= group.names.keys():
            raise BrokerError(
                ErrorCode.invalid_request, f"{len(names)} topics, at most {MOST_NAMES} may be named by a group"
            )
        members = len(group.members)
        if updated.member_id not in group.members and group.static_member(updated.instance_id) is None:
            members += 1
        metadata_hash = self._store.hashes.of_group({*names, *regex_names})
        epoch = group.epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            draft.change(Kind.EPOCH, "", EpochValue(epoch, metadata_hash))
            log.info("group %.200r: epoch %d", group.group_id, epoch)
        if group.has_topics_record:
            draft.change(Kind.TOPICS, "", None)
        group_id = group.group_id

        def seen() -> None:
            current = self._store.groups.get(group_id)
            if current is not None:
                current.seen_topics_version = version

        draft.then(seen)
        return epoch, is_homogeneous(regexes, names, regex_names, members)

    def target(
        self, draft: Draft, group: ConsumerGroup, epoch: int, member: ConsumerMember, updated: ConsumerMember, *,
        homogeneous: bool,
    ) -> tuple[int, Partitions]:  # fmt: skip
        """The epoch of the target assignment and what it gives to the member, made anew where it is due."""
        store, now_ms = self._store, self._store.now_ms()
        as_it_is = group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id)
        if group.assignment_epoch >= epoch:
            return as_it_is
        if not may_assign(group, store.settings(group.group_id).assignment_interval_ms, now_ms):
            return as_it_is
        name = group.preferred_assignor(member, updated) or store.assignors[0]
        if takes_long(group, updated, store.topics):
            draft.then(lambda: self._assigning.begin(group.group_id))
            return as_it_is
        found = assign_target(
            draft, group, epoch, updated, name, homogeneous=homogeneous, topics=store.topics, now_ms=now_ms
        )
        log.info("group %.200r: target assignment for epoch %d, by %s", group.group_id, epoch, name)
        return epoch, found

    def reconcile(
        self, draft: Draft, group: ConsumerGroup, updated: ConsumerMember, target_epoch: int, target: Partitions,
        reported: Reported | None, *, subscription_changed: bool,
    ) -> ConsumerMember:  # fmt: skip
        """The member one step further. Raises BrokerError (FENCED_MEMBER_EPOCH)."""
        if not subscription_changed and updated.is_reconciled_to(target_epoch):
            return updated
        names = group.topics_of(updated)

        def is_subscribed(topic_id: UUID) -> bool:
            topic = self._store.topics.by_id(topic_id)
            return topic is not None and topic.name in names

        going = Target(target_epoch, target, group.has_owner, is_subscribed, reported)
        found = reconciled(updated, going, subscription_changed=subscription_changed)
        if found != updated:
            put_current(draft, found)
            draft.then(lambda: self._sessions.expect_revocation(group.group_id, found))
        return found

    # ---- members that leave

    def _leave(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        group = self._store.find(request.group_id)
        answer = HeartbeatAnswer(request.member_id, request.member_epoch)
        if request.instance_id is None:
            self._sessions.remove(group, [group.member(request.member_id)])
            return answer
        member = check_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.member_epoch != LEAVING_STATIC:
            self._sessions.remove(group, [member])
            return answer
        draft = Draft(group.group_id)
        # What it has counts as assigned at epoch 0: it may commit under the id that it will come back with.
        assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
        put_current(draft, replace(member, epoch=LEAVING_STATIC, assigned=assigned, pending_revocation={}))
        self._store.commit(draft)
        return answer


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Raises BrokerError (GROUP_MAX_SIZE_REACHED)."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise BrokerError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def return_static(draft: Draft, group: ConsumerGroup, owner: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member is back, under another member id."""
    member = replace(owner, member_id=member_id, epoch=0, previous_epoch=0)
    replace_member(draft, group, owner, member)
    return member


def note_member(draft: Draft, member: ConsumerMember, updated: ConsumerMember) -> bool:
    """True if the names of topics that it subscribes to have changed."""
    if updated is member or updated == member:
        return False
    put_member(draft, updated)
    return updated.topics != member.topics


def _with_news(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member itself where nothing is new, as in nearly every heartbeat."""
    timeout = request.rebalance_timeout_ms
    is_the_same_client = (member.client_id, member.client_host) == (request.client_id, request.client_host)
    if is_the_same_client and member.classic is None and request.says_nothing_new:
        return member
    return replace(
        member,
        instance_id=_or(request.instance_id, member.instance_id),
        rack_id=_or(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == NOT_SAID else timeout,
        assignor=_or(request.assignor, member.assignor),
        topics=member.topics if request.topics is None else frozenset(request.topics),
        regex=_or(request.regex, member.regex),
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _or(news: str | None, known: str | None) -> str | None:
    return known if news is None else news


def _subscriptions(
    group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Counts of subscribed names, expressions, and names that these match, with one member replaced."""
    names, regexes, regex_names = group.names.copy(), group.subscribed_regexes.copy(), group.regex_names.copy()
    names.subtract(member.topics)
    names.update(updated.topics)
    if member.regex != updated.regex:
        if member.regex:
            if group.subscribed_regexes[member.regex] == 1:
                resolved = group.regexes.get(member.regex)
                regex_names.subtract(resolved.topics if resolved is not None else ())
            regexes[member.regex] -= 1
        if updated.regex:
            regexes[updated.regex] += 1
    return +names, +regexes, +regex_names
