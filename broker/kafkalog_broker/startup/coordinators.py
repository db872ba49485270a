"""Creation and loading of the coordinators of groups, transactions and share partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.admin.share_group_state import initialize_share_partitions
from kafkalog_broker.broker import Broker, internal_partitions
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_timer import Scheduler
from kafkalog_broker.coordinator.log_flushes import LogFlushes
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.groups.modern.group_settings import ShareGroupSettings, share_group_settings
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.lifecycle import Lifecycle
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.startup.loaded_logs import LoadedLogs
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_ends import TransactionEnds
from kafkalog_broker.transactions.transaction_marker import WriteMarker, marker_writer
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC


class ShareInitializer:
    """Queue of share partitions whose state has to be created.

    Group coordinators add requests. `run` handles them with the complete broker, of which the coordinators are a part.
    """

    def __init__(self) -> None:
        self._requests: asyncio.Queue[tuple[str, int, Mapping[UUID, SharedTopic], bool]] = asyncio.Queue()

    def request(self, group_id: str, epoch: int, topics: Mapping[UUID, SharedTopic], from_start: bool) -> None:
        """Create the state soon. The arguments are those of `admin.share_group_state.initialize_share_partitions`."""
        self._requests.put_nowait((group_id, epoch, topics, from_start))

    async def run(self, broker: Broker) -> None:
        """Handle requests until cancelled, each in a task of its own."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                group_id, epoch, topics, from_start = await self._requests.get()
                task = asyncio.create_task(
                    initialize_share_partitions(broker, group_id, epoch, topics, from_start=from_start)
                )
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, slots=True)
class Coordinators:
    """All coordinators. They load their topics once the broker serves."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_ends: TransactionEnds
    write_marker: WriteMarker
    share_coordinator: ShareCoordinator
    share_partitions: SharePartitionManager
    share_initializer: ShareInitializer


def make_coordinators(
    loaded: LoadedLogs,
    clock: Clock,
    scheduler: Scheduler,
    workers: Workers,
    flushes: LogFlushes,
    started: AsyncExitStack,
    *,
    is_mirror: bool,
) -> Coordinators:
    """Make the coordinators.

    Args:
        loaded: The logs of the broker.
        clock: Time of the broker.
        scheduler: Runs timers.
        workers: Threads.
        flushes: Flushes that responses wait for.
        started: Stops the coordinators when it unwinds.
        is_mirror: The broker mirrors another cluster, so it neither ends transactions nor writes markers.
    """
    current_config, dynamic_configs, partitions = loaded.current_config, loaded.dynamic_configs, loaded.partitions
    config = current_config.get()
    topic_sizes = internal_partitions(config)

    def state_log(topic: str, read_bytes: int = 1 << 20) -> CoordinatorLog:
        return CoordinatorLog(topic, loaded.topics, partitions.log, clock, topic_sizes[topic], read_bytes, flushes)

    def share_settings(group_id: str) -> ShareGroupSettings:
        return share_group_settings(current_config.get(), dynamic_configs.group_overrides(group_id))

    share_state = state_log(SHARE_STATE_TOPIC, config.share_coordinator_load_buffer_size)
    share_coordinator = ShareCoordinator(config, clock, share_state, loaded.topics)
    started.callback(share_coordinator.runtime.stop)
    share_partitions = SharePartitionManager(
        config.group_share_max_share_sessions,
        share_coordinator,
        partitions.log_by_id,
        share_settings,
        clock,
        scheduler,
        workers.run_blocking,
    )
    share_initializer = ShareInitializer()
    context = GroupContext(
        config,
        clock,
        scheduler,
        topics=loaded.topics,
        overrides=dynamic_configs.group_overrides,
        background=workers.compute_then,
        initialize=share_initializer.request,
    )

    def update_config(new_config: BrokerConfig) -> None:
        context.config = new_config

    current_config.subscribe(update_config)
    groups = GroupCoordinator(state_log(OFFSETS_TOPIC), context)
    write_marker = marker_writer(groups, partitions.log, clock)
    transactions = TransactionCoordinator(
        config,
        clock=clock,
        state_log=state_log(TRANSACTION_TOPIC, config.transaction_state_log_load_buffer_size),
        write_marker=write_marker,
        new_producer_id=loaded.producer_ids.next,
        flushes=flushes,
    )
    transaction_ends = TransactionEnds(transactions, partitions.log, flushes)
    if is_mirror:
        transactions.runtime.stop()
    started.callback(transactions.shutdown)
    started.push_async_callback(transaction_ends.stop)
    return Coordinators(
        groups, transactions, transaction_ends, write_marker, share_coordinator, share_partitions, share_initializer
    )


def begin_loading(coordinators: Coordinators, *, is_mirror: bool) -> None:
    """Respond COORDINATOR_LOAD_IN_PROGRESS for all partitions until `load_coordinators` has read them."""
    for runtime in (coordinators.groups.runtime, coordinators.share_coordinator.runtime):
        runtime.begin_loading(runtime.log.owned())
    if not is_mirror:
        transactions = coordinators.transactions.runtime
        transactions.begin_loading(transactions.log.owned())


async def load_coordinators(
    coordinators: Coordinators, workers: Workers, lifecycle: Lifecycle, *, is_mirror: bool
) -> None:
    """Read the topics of all coordinators while the broker serves.

    Transactions come first, so that prepared ones are completed soon.
    """
    try:
        if not is_mirror:
            await coordinators.transactions.runtime.load_owned(workers.run_blocking, "transactions")
            coordinators.transaction_ends.complete_soon()
        await coordinators.groups.runtime.load_owned(workers.run_blocking, "groups")
        coordinators.transaction_ends.complete_soon()  # transactions that waited for a partition of __consumer_offsets
        await coordinators.share_coordinator.runtime.load_owned(workers.run_blocking, "share partitions")
    finally:
        lifecycle.coordinators_loaded.set()
