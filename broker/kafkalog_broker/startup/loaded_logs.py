"""Loading of the log directories: dynamic properties, topics, producer IDs and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.current_config import CurrentConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import FILE as DYNAMIC_CONFIGS_FILE
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.config.log_config import check_remote_storage_enabled
from kafkalog_broker.mirror.takeover import take_mirrors_over
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.lifecycle import Lifecycle
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.startup.background_tasks import run_until_stop
from kafkalog_broker.storage.log_directories import LogDirectories
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partitions import Partitions
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.format.names import TRANSACTION_TOPIC

if TYPE_CHECKING:
    from kafkalog_broker.mirror.served_mirror import ServedMirror  # with aiokafka, which only a mirror needs


@dataclass(frozen=True, slots=True)
class LoadedLogs:
    """The loaded logs of a broker, with its topics and dynamic configuration.

    Attributes:
        deleted_topic_ids: Topics whose deletion a crash interrupted.
        state_partitions: Number of partitions of __transaction_state that existed before the start.
    """

    current_config: CurrentConfig
    dynamic_configs: DynamicConfigs
    topics: TopicRegistry
    producer_ids: ProducerIds
    logs: LogManager
    partitions: Partitions
    deleted_topic_ids: frozenset[UUID]
    state_partitions: int


async def load_logs(
    config: BrokerConfig,
    dirs: LogDirectories,
    clock: Clock,
    workers: Workers,
    lifecycle: Lifecycle,
    started: AsyncExitStack,
    *,
    mirror: ServedMirror | None,
    progress: Callable[[Any], None] | None,
    stop_requested: asyncio.Event | None = None,
) -> LoadedLogs:
    """Load everything, with recovery after an unclean stop.

    Args:
        config: Static configuration.
        dirs: Locked log directories.
        clock: Time of the broker.
        workers: Threads.
        lifecycle: Its `failed` is set when all log directories have failed.
        started: Closes the logs when it unwinds.
        mirror: The mirror that fills the directories, if any.
        progress: Called with the progress of loading.
        stop_requested: Stops the recovery of logs when it is set.

    Raises:
        LoadingStopped: If `stop_requested` was set before all logs were recovered.
        KafkalogError: If a state file or a property in it cannot be used.
    """
    online = [log_dir.path for log_dir in dirs.online]
    dynamic_configs = DynamicConfigs(online, config.node_id)
    dynamic_configs.load()
    config = _with_dynamic(config, dynamic_configs)
    topics = TopicRegistry(dirs.all)
    topics.load()
    check_remote_storage_enabled(config, {topic.name: topic.configs for topic in topics})
    deleted_topic_ids = topics.deleted
    if mirror is not None:
        mirror.check_directory(topics)
    producer_ids = ProducerIds(online, workers.run_in_background)
    state_partitions = _count_state_partitions(online)
    logs = LogManager(
        dirs,
        config,
        topics,
        clock,
        call_soon=asyncio.get_running_loop().call_soon_threadsafe,
        run_blocking=workers.run_in_background,
        on_all_offline=lifecycle.failed.set,
    )
    logs.is_settled = False
    started.push_async_callback(workers.run_blocking, logs.shutdown)
    loading = workers.begin_blocking(partial(logs.load, progress))
    started.push_async_callback(asyncio.wait, [loading])  # the thread keeps running if the start is cancelled
    started.callback(logs.stops_loading.set)
    if stop_requested is not None:
        run_until_stop(started, _stop_loading(logs, stop_requested))
    await asyncio.shield(loading)
    partitions = Partitions(topics, logs)
    if mirror is None:
        await workers.run_blocking(take_mirrors_over, online, config, logs, topics, partitions.log, clock, producer_ids)
    return LoadedLogs(
        CurrentConfig(config),
        dynamic_configs,
        topics,
        producer_ids,
        logs,
        partitions,
        deleted_topic_ids,
        state_partitions,
    )


async def _stop_loading(logs: LogManager, stop_requested: asyncio.Event) -> None:
    await stop_requested.wait()
    logs.stops_loading.set()


def _with_dynamic(config: BrokerConfig, dynamic_configs: DynamicConfigs) -> BrokerConfig:
    try:
        return config.with_dynamic(dynamic_configs.default, dynamic_configs.broker)
    except ConfigError as error:
        hint = f"it was set while the broker ran: correct it in {DYNAMIC_CONFIGS_FILE} of each log directory"
        raise ConfigError(error.what, name=error.name, hint=hint) from None


def _count_state_partitions(directories: list[Path]) -> int:
    """Return the number of partitions of __transaction_state in the directories.

    A log directory of a larger cluster's broker has some of them; loading creates the others, which are empty.
    """
    names = {path.name for directory in directories for path in directory.glob(f"{TRANSACTION_TOPIC}-*")}
    return sum(name.rpartition("-")[2].isdecimal() for name in names)
