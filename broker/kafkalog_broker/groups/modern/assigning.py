"""Target assignments of large groups, made in a thread: no heartbeat holds the others up (as KIP-1263 has it).

Members go on with the target assignment that there is, until the next one is written.
"""

from __future__ import annotations

import logging

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.modern.changes import Kind
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup, is_homogeneous
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.group_store import GroupStore
from kafkalog_broker.groups.modern.target_assignment import assign
from kafkalog_broker.groups.modern.topics_view import TopicsView
from kafkalog_broker.groups.modern.values import ConsumerMember

log = logging.getLogger(__name__)

_MEMBER_COSTS = 10  # partitions
_AT_ONCE = 3_000
"""Partitions, and members counted as ten: some 3 ms."""


def takes_long(group: ConsumerGroup, updated: ConsumerMember, topics: TopicsView) -> bool:
    """Whether an assignment is not to be made while others wait."""
    cost = _MEMBER_COSTS * len(group.members)
    for name in {*group.names, *group.regex_names, *updated.topics}:
        topic = topics.by_name(name)
        cost += 0 if topic is None else topic.partitions
        if cost > _AT_ONCE:
            return True
    return cost > _AT_ONCE


class Assigning:
    """One assignment at a time for each group."""

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
            assign(draft, seen, seen.epoch, anybody, name, homogeneous=homogeneous, topics=store.topics, now_ms=now_ms)
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
