"""Changes of share groups that both coordinators take part in: begun in the group, carried out in the share partitions'
state, finished in the group. What is left half done by a crash is done again when it is asked for again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.internal_topics import internal_topic_configs
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.share.membership.group_records import TopicInfo
from kafkalog_broker.share.state.state_batches import NO_START_OFFSET
from kafkalog_broker.share.state.state_records import SharePartitionKey
from kafkalog_broker.turn import Turn
from kafkalog_spark.log.format.names import SHARE_STATE_TOPIC

_log = logging.getLogger(__name__)

Offsets = Mapping[UUID, Mapping[int, int]]
"""Topic id to partition to start offset."""


async def ensure_state_topic(broker: Broker) -> None:
    """Raises BrokerError."""
    if SHARE_STATE_TOPIC not in broker.topics:
        partitions = broker.config.share_coordinator_state_topic_num_partitions
        configs = internal_topic_configs(broker.config)[SHARE_STATE_TOPIC]
        await broker.ensure_topic(SHARE_STATE_TOPIC, partitions, configs)


async def initialize(broker: Broker, group_id: str, state_epoch: int, topics: Mapping[UUID, TopicInfo]) -> None:
    """Begin the state of share partitions that members subscribe to, and let the group know."""
    turn = Turn()
    try:
        try:
            await ensure_state_topic(broker)
            for topic_id, info in topics.items():
                async for index in turn.spread(info.partitions):
                    key = SharePartitionKey(group_id, topic_id, index)
                    broker.share_coordinator.initialize(key, state_epoch, NO_START_OFFSET)
        except BrokerError as error:
            _log.warning("share group %.200r: the state of its partitions cannot be begun: %s", group_id, error)
            broker.share_groups.shard(group_id).set_not_initialized(group_id, topics)
        else:
            broker.share_groups.shard(group_id).set_initialized(group_id, topics)
    except BrokerError as error:  # it is begun again after group.share.initialize.retry.interval.ms
        _log.warning("share group %.200r: which partitions have state cannot be written: %s", group_id, error)


async def alter_offsets(
    broker: Broker, group_id: str, wanted: Offsets, turn: Turn
) -> dict[tuple[UUID | None, int], BrokerError]:
    """What could not be set, and why. Raises BrokerError."""
    await ensure_state_topic(broker)
    shard = broker.share_groups.shard(group_id)
    if group_id not in shard.groups:
        broker.group_ids.check_free(group_id)
    infos = {
        topic_id: TopicInfo(topic.name, tuple(sorted(offsets)))
        for topic_id, offsets in wanted.items()
        if (topic := broker.topics.by_id(topic_id)) is not None
    }
    epoch = shard.begin_altering(group_id, infos)
    broker.deliveries.forget_group(group_id)
    failed: dict[tuple[UUID | None, int], BrokerError] = {}
    for topic_id, offsets in wanted.items():
        async for index, offset in turn.spread(offsets.items()):
            try:
                broker.share_coordinator.initialize(SharePartitionKey(group_id, topic_id, index), epoch, offset)
            except BrokerError as error:
                failed[topic_id, index] = error
    if not failed and infos:
        shard.set_initialized(group_id, infos)
    return failed


async def delete_offsets(
    broker: Broker, group_id: str, topics: Mapping[UUID, str], turn: Turn
) -> dict[UUID, BrokerError | None]:
    """What became of each topic that had state. Raises BrokerError."""
    shard = broker.share_groups.shard(group_id)
    found = shard.begin_deleting(group_id, list(topics))
    broker.deliveries.forget_group(group_id)
    outcomes = await _delete_state(broker, group_id, found, turn)
    gone = [topic for topic, outcome in outcomes.items() if outcome is None]
    if gone:
        shard.set_deleted(group_id, gone)
    return outcomes


async def delete_group(broker: Broker, group_id: str) -> None:
    """Raises BrokerError: group_id_not_found, non_empty_group, and those of the share coordinator."""
    shard = broker.share_groups.shard(group_id)
    found = shard.all_with_state(group_id)
    broker.deliveries.forget_group(group_id)
    for outcome in (await _delete_state(broker, group_id, found, Turn())).values():
        if outcome is not None:
            raise outcome
    shard.delete(group_id)


async def _delete_state(
    broker: Broker, group_id: str, topics: Mapping[UUID, TopicInfo], turn: Turn
) -> dict[UUID, BrokerError | None]:
    outcomes: dict[UUID, BrokerError | None] = {}
    for topic_id, info in topics.items():
        outcomes[topic_id] = None
        async for index in turn.spread(info.partitions):
            try:
                broker.share_coordinator.delete(SharePartitionKey(group_id, topic_id, index))
            except BrokerError as error:
                outcomes[topic_id] = error
    return outcomes
