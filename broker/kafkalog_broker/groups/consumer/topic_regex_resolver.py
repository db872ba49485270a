"""Topics that the regular expressions of a consumer group match (Kafka's TopicRegexResolver, KIP-848).

A new expression is checked within the request and matched in a thread. The matching topics are written as a record, and
if they have changed, the group epoch rises. All expressions of a group are matched again every
group.consumer.regex.refresh.interval.ms, and after topics were created, but at most once in _MIN_REFRESH_INTERVAL_MS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.re2_regexes import check_regex, matching_names
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import GroupType, ResolvedRegex
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

_MIN_REFRESH_INTERVAL_MS = 10_000  # Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS

MayDescribe = Callable[[str], bool] | None
"""Whether the sender of a request may describe a topic; None if it may describe all of them."""


class RegexChange(NamedTuple):
    """Change of a member's regular expression by a request.

    Attributes:
        is_changed: The member has another expression than before, or none any more.
        is_resolved: It is changed, and the topics that the member subscribes to now are known.
    """

    is_changed: bool
    is_resolved: bool


def put_regex_change(
    groups: ModernGroups[ConsumerGroup], changes: GroupChanges, group: ConsumerGroup, member: ConsumerMember,
    updated: ConsumerMember, may_describe: MayDescribe,
) -> RegexChange:  # fmt: skip
    """Put the records that a member's new regular expression requires, and resolve all expressions of the group if due.

    Args:
        member: The member before this request.
        updated: The member after this request.

    Raises:
        BrokerError: invalid_regular_expression.
    """
    old = member.regex
    new = updated.regex
    is_new = is_resolved = False
    if old != new:
        if old and group.subscribed_regexes[old] == 1:
            changes.remove_regex(old)
        if new and not group.subscribed_regexes[new]:
            check_regex(new)
            is_new = True
        else:
            is_resolved = bool((new and new in group.regexes) or (old and not new))
    if is_new or group.subscribed_regexes:
        subscribed = sorted(group.subscribed_regexes_after([member], [updated]))
        if subscribed and _is_resolving_due(groups, group, subscribed, is_new=is_new):
            changes.on_commit(lambda: _resolve_in_background(groups, group.group_id, subscribed, may_describe))
    return RegexChange(old != new, is_resolved)


def cancel_resolving(groups: ModernGroups[ConsumerGroup], group_id: str) -> None:
    """Discard the result of the thread that resolves the expressions of a removed group."""
    groups.executor.cancel(_executor_key(group_id))


def _is_resolving_due(
    groups: ModernGroups[ConsumerGroup], group: ConsumerGroup, subscribed: Sequence[str], *, is_new: bool
) -> bool:
    context = groups.context
    if groups.executor.is_scheduled(_executor_key(group.group_id)):
        return False
    if not group.regexes:
        return True
    age_ms = context.clock.now_ms() - next(iter(group.regexes.values())).timestamp_ms
    return age_ms > _MIN_REFRESH_INTERVAL_MS and (
        is_new
        or len(subscribed) != len(group.regexes)
        or group.matched_generation != context.topics.created_generation
        or age_ms > context.config.group_consumer_regex_refresh_interval_ms
    )


def _resolve_in_background(
    groups: ModernGroups[ConsumerGroup], group_id: str, subscribed: list[str], may_describe: MayDescribe
) -> None:
    if group_id not in groups.groups:
        return
    topics = groups.context.topics
    now_ms = groups.context.clock.now_ms()
    generation, created_generation, names = topics.generation, topics.created_generation, topics.topics

    def operation(matched: Mapping[str, Iterable[str]] | Exception) -> GroupResult[None] | None:
        group = groups.groups.get(group_id)
        if group is None or isinstance(matched, Exception):
            return None  # the next heartbeat resolves them again
        resolved = {
            regex: ResolvedRegex(
                frozenset(name for name in matching if may_describe is None or may_describe(name)), generation, now_ms
            )
            for regex, matching in matched.items()
        }
        return _resolved(groups, group, resolved, created_generation)

    groups.executor.schedule(_executor_key(group_id), lambda: matching_names(subscribed, names), operation)


def _resolved(
    groups: ModernGroups[ConsumerGroup], group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex],
    created_generation: int,
) -> GroupResult[None]:  # fmt: skip
    changes = GroupChanges(GroupType.CONSUMER, group.group_id)
    present = dict(group.regexes)
    has_other_topics = False
    for regex, new in resolved.items():
        if group.subscribed_regexes[regex]:
            before = present.get(regex)
            has_other_topics |= (before.topics if before is not None else frozenset()) != new.topics
            present[regex] = new
            changes.put_regex(regex, new)
    names = {*group.subscribed_topics, *(name for regex in present.values() for name in regex.topics)}
    metadata_hash = groups.context.metadata_hash(names)
    if has_other_topics or metadata_hash != group.metadata_hash:
        changes.put_epoch(group.epoch + 1, metadata_hash)
        _log.info("group %.200r: epoch %d, its expressions match other topics", group.group_id, group.epoch + 1)

    def remember_generation() -> None:
        group.matched_generation = created_generation

    changes.on_commit(remember_generation)
    return changes.result(None)


def _executor_key(group_id: str) -> tuple[str, str]:
    return "regex", group_id
