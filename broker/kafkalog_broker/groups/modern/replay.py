"""Changes applied to groups in memory: those that were just written, and those that are read at a start.

Kafka's GroupMetadataManager.replay. A start applies what remains of each key after all records, so the order of
changes does not count there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafkalog_broker.groups.modern.changes import Change, Kind
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.values import LEAVING, ConsumerMember

Groups = dict[str, ConsumerGroup]


def apply(groups: Groups, changes: Iterable[Change]) -> None:
    for change in changes:
        _apply(groups, change)


def _apply(groups: Groups, change: Change) -> None:
    group = groups.get(change.group_id)
    if group is None:
        if change.value is None:
            return  # there is nothing to be taken away
        group = groups[change.group_id] = ConsumerGroup(change.group_id)
    value = change.value
    match change.kind:
        case Kind.EPOCH:
            if value is None:
                del groups[change.group_id]
            else:
                group.epoch, group.metadata_hash = value
        case Kind.TOPICS:
            group.has_topics_record = value is not None
        case Kind.TARGET_EPOCH:
            group.assignment_epoch, group.assignment_timestamp_ms = (LEAVING, 0) if value is None else value
        case Kind.TARGET:
            group.set_target(change.name, value)
        case Kind.REGEX:
            group.set_regex(change.name, value)
        case Kind.MEMBER | Kind.CURRENT:
            _apply_to_member(group, change)


def _apply_to_member(group: ConsumerGroup, change: Change) -> None:
    value = change.value
    member = group.members.get(change.name)
    if value is None:
        if member is not None and change.kind is Kind.CURRENT:
            group.put(replace(member, epoch=LEAVING, previous_epoch=LEAVING, assigned={}, pending_revocation={}))
        elif member is not None:
            group.remove(change.name)
        return
    member = member or ConsumerMember(change.name)
    if change.kind is Kind.CURRENT:
        updated = replace(
            member, epoch=value.epoch, previous_epoch=value.previous_epoch, state=value.state,
            assigned=value.assigned, pending_revocation=value.pending_revocation,
        )  # fmt: skip
    else:
        updated = replace(
            member, instance_id=value.instance_id, rack_id=value.rack_id, client_id=value.client_id,
            client_host=value.client_host, topics=value.topics, regex=value.regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms, assignor=value.assignor, classic=value.classic,
        )  # fmt: skip
    group.put(updated)
