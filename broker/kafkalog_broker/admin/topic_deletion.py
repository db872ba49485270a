"""Delete topics, and the group offsets and share group state that belong to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kafkalog_broker.admin.partition_quota import Charge, charge_each, free_of_charge
from kafkalog_broker.admin.registry_writes import write_registry
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition_removal import PartitionRemoval, combine_removals
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

_log = logging.getLogger(__name__)


async def delete_topics(broker: Broker, names: Sequence[str], charge: Charge = free_of_charge) -> list[Outcome]:
    """Remove topics from the registry, in one write, and rename their directories.

    The files are deleted after file.delete.delay.ms.

    Args:
        broker: Owner of the topics.
        names: Topic names, each at most once.
        charge: Charges the removed partitions of each topic to a quota.

    Returns:
        The deleted topic or the error of each name, in order.
    """
    try:
        broker.check_not_mirrored("topics cannot be deleted")
    except BrokerError as error:
        return [error] * len(names)
    partitions = {name: topic.partitions for name in names if (topic := broker.topics.get(name)) is not None}
    over_quota = await charge_each(charge, partitions)
    admitted = [name for name in names if name not in over_quota]
    if not admitted:
        return [over_quota[name] for name in names]
    time_slice = TimeSlice()
    with _names_reserved(broker, admitted):
        registered = await write_registry(broker, broker.topics.delete_all, admitted)
        topics = [topic for topic in registered if isinstance(topic, Topic)]
        removals: list[PartitionRemoval] = []
        async for topic in time_slice.spread(topics):
            removals.append(broker.logs.detach_topic(topic))
            if topic.name == TRANSACTION_TOPIC:
                broker.transactions.close_all()
            elif topic.name == OFFSETS_TOPIC:
                broker.groups.close_all()
            elif topic.name == SHARE_STATE_TOPIC:
                broker.share_coordinator.close_all()
            _log.info("topic %s is deleted", topic.name)
        outcomes: dict[str, Outcome] = {**dict(zip(admitted, registered, strict=True)), **over_quota}
        if not topics:
            return [outcomes[name] for name in names]
        if broker.remote is not None:
            for topic in topics:
                await broker.remote.delete_topic_segments(topic)
        removal = combine_removals(removals, partial(broker.logs.forget_deleted, topics))
        try:
            await broker.run_blocking(removal.finish)
        except BrokerError as error:
            _log.error("%s", error)
    await _delete_group_state(broker, topics, time_slice)
    return [removal.failed.get(name, outcomes[name]) for name in names]


@contextmanager
def _names_reserved(broker: Broker, names: Sequence[str]) -> Iterator[None]:
    """Let the creation of topics with these names wait until the directories of the deleted ones are renamed."""
    renamed = asyncio.Event()
    reserved = [name for name in names if broker.directory_renames.setdefault(name, renamed) is renamed]
    try:
        yield
    finally:
        for name in reserved:
            del broker.directory_renames[name]
        renamed.set()


async def _delete_group_state(broker: Broker, topics: Sequence[Topic], time_slice: TimeSlice) -> None:
    """Delete the offsets and the share group state of deleted topics."""
    names, topic_ids = {topic.name for topic in topics}, {topic.id for topic in topics}
    broker.share_partitions.drop_topics(topic_ids)
    async for _ in time_slice.spread(broker.groups.on_topics_deleted(names, topic_ids)):
        pass
    async for _ in time_slice.spread(broker.share_coordinator.on_topics_deleted(topic_ids)):
        pass
