"""The parts of a broker that serve share groups, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

from kafkalog_broker.admin import share_changes
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.fetching.deliveries import Deliveries
from kafkalog_broker.share.fetching.delivery import Scheduler
from kafkalog_broker.share.group_settings import GroupSettings
from kafkalog_broker.share.membership.group_records import TopicInfo
from kafkalog_broker.share.membership.share_group_coordinator import GroupIds, ShareGroupCoordinator
from kafkalog_broker.share.state.share_coordinator import ShareCoordinator
from kafkalog_broker.share.state.share_state_topic import ShareStateTopic
from kafkalog_broker.storage.partition.log import Log


class ShareParts:
    """Gives a broker `share_state_topic`, `share_coordinator`, `deliveries` and `share_groups`, before its `groups`."""

    def __init__(self, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._initializing: set[asyncio.Task[None]] = set()
        config, clock = broker.config, broker.clock
        broker.share_state_topic = state = ShareStateTopic(config, broker.topics, broker.log, clock)
        broker.share_coordinator = ShareCoordinator(config, clock, state, self._partitions_of)
        broker.deliveries = Deliveries(
            config.group_share_max_share_sessions, broker.share_coordinator, self._log_of, self.settings_of, clock,
            scheduler, broker.workers.run_blocking,
        )  # fmt: skip
        broker.share_groups = ShareGroupCoordinator(
            GroupIds(lambda: broker.groups),
            lambda partition, records: broker.offsets_topic.append(partition, records),
            clock, scheduler, broker.topics, self.settings_of, self._initialize, config.broker_rack,
        )  # fmt: skip
        for partition in state.owned():
            broker.share_coordinator.shards.begin_loading(partition)

    def stop(self) -> None:
        for task in self._initializing:
            task.cancel()
        self._broker.share_coordinator.shutdown()

    def settings_of(self, group_id: str) -> GroupSettings:
        """What holds for a share group now."""
        return GroupSettings.of(self._broker.config, self._broker.dynamic_configs.of_group(group_id))

    def _partitions_of(self, topic_id: UUID) -> int | None:
        topic = self._broker.topics.by_id(topic_id)
        return None if topic is None else topic.partitions

    def _log_of(self, topic_id: UUID, partition: int) -> Log:
        topic = self._broker.topics.by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return self._broker.log(topic.name, partition)

    def _initialize(self, group_id: str, epoch: int, topics: Mapping[UUID, TopicInfo]) -> None:
        task = asyncio.create_task(share_changes.initialize(self._broker, group_id, epoch, topics))
        self._initializing.add(task)
        task.add_done_callback(self._initializing.discard)
