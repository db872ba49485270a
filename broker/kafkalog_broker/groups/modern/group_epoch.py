"""The epoch of a consumer or share group, which rises when subscriptions or the subscribed topics have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.modern_group import MemberT, ModernGroup
from kafkalog_broker.groups.modern.modern_groups import ModernGroups

_log = logging.getLogger(__name__)

MAX_SUBSCRIBED_TOPICS = 4_000
"""Largest number of topics that the members of a group may name. One step hashes all of them after a change."""


def put_group_epoch(
    groups: ModernGroups[Any],
    changes: GroupChanges,
    group: ModernGroup[MemberT],
    member: MemberT,
    updated: MemberT,
    *,
    is_bumped: bool,
    matched_topics: Callable[[], Collection[str]],
) -> int:
    """Put the next epoch if it is due, and return the group's epoch after this request.

    Args:
        member: The member before this request.
        updated: The member after this request.
        is_bumped: Raise the epoch even if the metadata of the topics has not changed.
        matched_topics: Returns the topics that the members subscribe to by regular expression after this request.

    Raises:
        BrokerError: invalid_request if the members name too many topics.
    """
    generation = groups.context.topics.generation
    if not is_bumped and group.hashed_topics_generation == generation:
        return group.epoch
    topics = group.subscribed_topics_after([member], [updated])
    if len(topics) > MAX_SUBSCRIBED_TOPICS and not updated.topics <= group.subscribed_topics.keys():
        raise BrokerError(
            ErrorCode.invalid_request,
            f"{len(topics)} topics, at most {MAX_SUBSCRIBED_TOPICS} may be named by a group",
        )
    metadata_hash = groups.context.metadata_hash(topics.union(matched_topics()))
    epoch = group.epoch
    if is_bumped or metadata_hash != group.metadata_hash:
        epoch += 1
        changes.put_epoch(epoch, metadata_hash)
        _log.info("group %.200r: epoch %d", group.group_id, epoch)

    def remember_generation() -> None:
        # For a new group, `group` is not in `groups`: the replay of its records has created another object.
        if group.group_id in groups.groups:
            groups.groups[group.group_id].hashed_topics_generation = generation

    changes.on_commit(remember_generation)
    return epoch
