"""Changes to share groups that involve both coordinators.

The group coordinator records which share partitions have state, and the share coordinator keeps that state. A change is
first recorded as begun by the group coordinator, then made by the share coordinator, then recorded as complete. If a
crash interrupts a change, the next such request completes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_state import NO_START_OFFSET, SharePartitionKey
from kafkalog_spark.format.names import SHARE_STATE_TOPIC

_log = logging.getLogger(__name__)


async def initialize_share_partitions(
    broker: Broker, group_id: str, state_epoch: int, topics: Mapping[UUID, SharedTopic], *, from_start: bool
) -> None:
    """Create the state of share partitions that members have subscribed to. Errors are logged and the change retried.

    Args:
        broker: Owner of both coordinators.
        group_id: Share group.
        state_epoch: Epoch of the new state.
        topics: Topics with the partitions to initialize.
        from_start: Start at offset 0, whatever share.auto.offset.reset is.
    """
    time_slice, is_initialized = TimeSlice(), True
    start_offset = 0 if from_start else NO_START_OFFSET
    try:
        await broker.ensure_internal_topic(SHARE_STATE_TOPIC)
        for topic_id, topic in topics.items():
            async for index in time_slice.spread(topic.partitions):
                key = SharePartitionKey(group_id, topic_id, index)
                broker.share_coordinator.initialize(key, state_epoch, start_offset)
    except BrokerError as error:
        _log.warning("share group %.200r: cannot initialize the state of share partitions: %s", group_id, error)
        is_initialized = False
    try:
        if is_initialized:
            broker.groups.initialize_share_group_state(group_id, topics)
        else:
            broker.groups.uninitialize_share_group_state(group_id, topics)
    except BrokerError as error:  # retried after group.share.initialize.retry.interval.ms
        _log.warning("share group %.200r: cannot record which share partitions are initialized: %s", group_id, error)


async def alter_start_offsets(
    broker: Broker, group_id: str, start_offsets: Mapping[UUID, Mapping[int, int]], time_slice: TimeSlice
) -> Mapping[SharePartitionKey, BrokerError]:
    """Set the start offsets of share partitions of an empty group.

    Args:
        broker: Owner of both coordinators.
        group_id: Share group.
        start_offsets: Start offset by topic ID and partition. The partitions must exist.
        time_slice: Time slice of the request.

    Returns:
        The errors of those share partitions that could not be altered.

    Raises:
        BrokerError: If the group cannot be altered.
    """
    await broker.ensure_internal_topic(SHARE_STATE_TOPIC)
    topics = {
        topic_id: SharedTopic(topic.name, tuple(sorted(offsets)))
        for topic_id, offsets in start_offsets.items()
        if (topic := broker.topics.by_id(topic_id)) is not None
    }
    state_epoch = broker.groups.alter_share_group_offsets(group_id, topics)
    broker.share_partitions.drop_group(group_id)
    errors: dict[SharePartitionKey, BrokerError] = {}
    for topic_id, offsets in start_offsets.items():
        async for index, offset in time_slice.spread(offsets.items()):
            key = SharePartitionKey(group_id, topic_id, index)
            try:
                broker.share_coordinator.initialize(key, state_epoch, offset)
            except BrokerError as error:
                errors[key] = error
    if not errors and topics:
        broker.groups.initialize_share_group_state(group_id, topics)
    return errors


async def delete_topic_state(
    broker: Broker, group_id: str, topic_ids: Collection[UUID], time_slice: TimeSlice
) -> Mapping[UUID, BrokerError | None]:
    """Delete the state of an empty group for some topics.

    Returns:
        For each topic of which the group had state, the error, or None if it was deleted.

    Raises:
        BrokerError: If the group cannot be altered.
    """
    topics = broker.groups.initiate_delete_share_group_offsets(group_id, topic_ids)
    outcomes = await _delete_share_partitions(broker, group_id, topics, time_slice)
    if deleted := [topic_id for topic_id, error in outcomes.items() if error is None]:
        broker.groups.complete_delete_share_group_offsets(group_id, deleted)
    return outcomes


async def delete_share_group(broker: Broker, group_id: str) -> None:
    """Delete a share group and the state of its share partitions. Raises BrokerError."""
    topics = broker.groups.initiate_delete_share_group(group_id)
    outcomes = await _delete_share_partitions(broker, group_id, topics, TimeSlice())
    for error in outcomes.values():
        if error is not None:
            raise error
    broker.groups.delete_share_group(group_id)


async def _delete_share_partitions(
    broker: Broker, group_id: str, topics: Mapping[UUID, SharedTopic], time_slice: TimeSlice
) -> Mapping[UUID, BrokerError | None]:
    """Delete the state of share partitions and return the last error of each topic, or None."""
    broker.share_partitions.drop_group(group_id)
    outcomes: dict[UUID, BrokerError | None] = {}
    for topic_id, topic in topics.items():
        outcomes[topic_id] = None
        async for index in time_slice.spread(topic.partitions):
            try:
                broker.share_coordinator.delete(SharePartitionKey(group_id, topic_id, index))
            except BrokerError as error:
                outcomes[topic_id] = error
    return outcomes
