"""Initialization and deletion of the state of share partitions, as recorded in the share group.

First the group coordinator records the intended change, then the share coordinator makes it, then the group coordinator
records that it is complete. The functions have the names of Kafka's GroupMetadataManager and GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_records import NO_STATE, GroupType, SharedTopic, StatePartitions
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.shared_topics import SharedTopics, difference, union, without_topics

ShareGroups = ModernGroups[ShareGroup]


def put_initialization(
    groups: ShareGroups, changes: GroupChanges, group: ShareGroup, epoch: int, subscribed: Collection[str]
) -> None:
    """Start the initialization of the share partitions that members subscribe to and that have no state yet."""
    uninitialized = _uninitialized_partitions(groups, group, subscribed)
    if not uninitialized:
        return
    changes.put_state_partitions(_with_initializing(group.partitions, uninitialized))
    added = _added_partitions(group.partitions, uninitialized)
    for topics, from_start in ((difference(uninitialized, added), False), (added, True)):
        if topics:
            changes.on_commit(partial(groups.context.initialize, group.group_id, epoch, topics, from_start))


def _uninitialized_partitions(
    groups: ShareGroups, group: ShareGroup, subscribed: Collection[str]
) -> dict[UUID, SharedTopic]:
    """Return the partitions of topics that have no state.

    Partitions whose initialization started in the last group.share.initialize.retry.interval.ms are not included.
    """
    context = groups.context
    state = group.partitions
    now_ms = context.clock.now_ms()
    retry_ms = context.config.group_share_initialize_retry_interval_ms
    recent = {
        topic_id: shared
        for topic_id, shared in state.initializing.items()
        if now_ms - group.initializing_since.get(topic_id, now_ms) < retry_ms
    }
    present = union(state.initialized, recent)
    uninitialized = {}
    for name in subscribed:
        topic = context.topics.get(name)
        if topic is not None:
            indexes = present[topic.id].partitions if topic.id in present else ()
            if len(indexes) < topic.partitions:
                others = tuple(index for index in range(topic.partitions) if index not in indexes)
                uninitialized[topic.id] = SharedTopic(name, others)
    return uninitialized


def _with_initializing(state: StatePartitions, topics: SharedTopics) -> StatePartitions:
    return StatePartitions(union(state.initializing, topics), state.initialized, without_topics(state.deleting, topics))


def _added_partitions(state: StatePartitions, uninitialized: SharedTopics) -> dict[UUID, SharedTopic]:
    """Return the partitions that were added to a topic after the group had begun to share it.

    The group must receive all their records. With share.auto.offset.reset=latest, records produced before the partition
    was initialized would be skipped (KAFKA-20742).
    """
    shared_before = {
        topic_id: shared
        for topic_id, shared in uninitialized.items()
        if topic_id in state.initialized or topic_id in state.initializing
    }
    retried = without_topics(state.initializing, state.initialized)  # first partitions of a topic, initialized again
    return difference(shared_before, retried)


def initialize_share_group_state(groups: ShareGroups, group_id: str, topics: SharedTopics) -> GroupResult[None]:
    """Record that share partitions have been initialized."""
    changes = GroupChanges(GroupType.SHARE, group_id)
    group = groups.groups.get(group_id)
    if group is not None:
        state = group.partitions
        changes.put_state_partitions(
            StatePartitions(difference(state.initializing, topics), union(state.initialized, topics), state.deleting)
        )
    return changes.result(None)


def uninitialize_share_group_state(groups: ShareGroups, group_id: str, topics: SharedTopics) -> GroupResult[None]:
    """Record that share partitions could not be initialized."""
    changes = GroupChanges(GroupType.SHARE, group_id)
    group = groups.groups.get(group_id)
    if group is not None and group.partitions.initializing:
        state = group.partitions
        changes.put_state_partitions(state._replace(initializing=difference(state.initializing, topics)))
    return changes.result(None)


def alter_share_group_offsets(groups: ShareGroups, group_id: str, topics: SharedTopics) -> GroupResult[int]:
    """Record that offsets of share partitions are about to be set, and return the state epoch to set them with.

    Creates the group if it does not exist.

    Raises:
        BrokerError: group_id_not_found if the group is of another type, non_empty_group.
    """
    groups.check_type(group_id)
    group = groups.groups.get(group_id) or groups.new_group(group_id)
    _check_empty(group)
    changes = GroupChanges(GroupType.SHARE, group_id)
    if topics:
        changes.put_state_partitions(_with_initializing(group.partitions, topics))
    return changes.result(group.epoch)


def initiate_delete_share_group_offsets(
    groups: ShareGroups, group_id: str, topic_ids: Collection[UUID]
) -> GroupResult[dict[UUID, SharedTopic]]:
    """Record that the state of topics is about to be deleted, and return its share partitions.

    Raises:
        BrokerError: group_id_not_found, non_empty_group.
    """
    group = groups.group(group_id)
    _check_empty(group)
    changes = GroupChanges(GroupType.SHARE, group_id)
    state = group.partitions
    if state == NO_STATE:
        return changes.result({})
    present = {topic_id: shared for topic_id, shared in state.initialized.items() if topic_id in topic_ids}
    present |= _all_partitions(groups, (topic_id for topic_id in topic_ids if topic_id in state.deleting))
    deleting = {**state.deleting, **{topic_id: shared.name for topic_id, shared in present.items()}}
    initialized = without_topics(state.initialized, present)
    changes.put_state_partitions(StatePartitions(state.initializing, initialized, deleting))
    return changes.result(present)


def complete_delete_share_group_offsets(
    groups: ShareGroups, group_id: str, topic_ids: Collection[UUID]
) -> GroupResult[None]:
    """Record that the state of topics has been deleted."""
    changes = GroupChanges(GroupType.SHARE, group_id)
    group = groups.groups.get(group_id)
    if group is not None:
        state = group.partitions
        changes.put_state_partitions(state._replace(deleting=without_topics(state.deleting, topic_ids)))
    return changes.result(None)


def initiate_delete_share_group(groups: ShareGroups, group_id: str) -> GroupResult[dict[UUID, SharedTopic]]:
    """Record that all state of a group is about to be deleted, and return its share partitions.

    Raises:
        BrokerError: group_id_not_found, non_empty_group.
    """
    group = groups.group(group_id)
    _check_empty(group)
    changes = GroupChanges(GroupType.SHARE, group_id)
    state = group.partitions
    if state == NO_STATE:
        return changes.result({})
    present = union(union(state.initialized, state.initializing), _all_partitions(groups, state.deleting))
    deleting = {topic_id: shared.name for topic_id, shared in present.items()}
    changes.put_state_partitions(StatePartitions({}, {}, deleting))
    return changes.result(present)


def forget_deleted_topics(groups: ShareGroups, group: ShareGroup, topic_ids: Collection[UUID]) -> GroupResult[None]:
    """Record that share partitions of deleted topics do not exist any more."""
    changes = GroupChanges(GroupType.SHARE, group.group_id)
    state = group.partitions
    remaining = StatePartitions(
        without_topics(state.initializing, topic_ids),
        without_topics(state.initialized, topic_ids),
        without_topics(state.deleting, topic_ids),
    )
    if remaining != state:
        changes.put_state_partitions(remaining)
    return changes.result(None)


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise BrokerError(ErrorCode.non_empty_group, "The group is not empty.")


def _all_partitions(groups: ShareGroups, topic_ids: Iterable[UUID]) -> dict[UUID, SharedTopic]:
    """Return all partitions of the topics that exist."""
    topics = map(groups.context.topics.by_id, topic_ids)
    return {topic.id: SharedTopic(topic.name, tuple(range(topic.partitions))) for topic in topics if topic is not None}
