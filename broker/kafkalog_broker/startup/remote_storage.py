"""Remote storage of a broker with remote.log.storage.system.enable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.remote_storage_settings import REMOTE_STORAGE
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.startup.background_tasks import run_until_stop
from kafkalog_broker.startup.loaded_logs import LoadedLogs
from kafkalog_broker.storage.log_directories import LogDirectories
from kafkalog_broker.storage.producer_ids import largest_cluster_id
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager  # loaded only with remote storage


@dataclass(frozen=True, slots=True)
class RemoteParts:
    """The remote log manager, and `settle`, which checks and records where its storage is (`settle_location`)."""

    manager: RemoteLogManager
    settle: Callable[[], None]


async def open_remote(
    loaded: LoadedLogs, dirs: LogDirectories, clock: Clock, workers: Workers, started: AsyncExitStack, *,
    is_mirror: bool,
) -> RemoteParts:  # fmt: skip
    """Open the storage, without sending a request to it. Call `start_remote` once the broker is complete.

    Raises:
        ConfigError: If the broker mirrors another cluster.
        OptionError: If a property of the storage cannot be used.
    """
    from kafkalog_broker.remote.remote_log_manager import RemoteLogManager
    from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
    from kafkalog_broker.remote.storage_location import open_remote_storage, settle_location

    if is_mirror:
        raise ConfigError("a broker that mirrors another cluster has no remote storage", name=REMOTE_STORAGE)
    current_config = loaded.current_config
    online = [log_dir.path for log_dir in dirs.online]
    storage = await workers.run_blocking(open_remote_storage, current_config.get, dirs.all[0].path, online)
    started.push_async_callback(workers.run_blocking, storage.close)

    def stay_above(producer_ids: Iterable[int]) -> None:
        loaded.producer_ids.stay_above(largest_cluster_id(list(producer_ids)))

    metadata = RemoteLogMetadataManager(
        current_config.get().node_id, clock, loaded.partitions.log, workers.run_blocking
    )
    manager = RemoteLogManager(
        current_config.get,
        storage,
        metadata,
        logs=loaded.logs,
        topics=loaded.topics,
        clock=clock,
        call=workers.run_blocking,
        stay_above=stay_above,
        deleted=loaded.deleted_topic_ids,
    )
    started.push_async_callback(manager.stop)
    return RemoteParts(manager, partial(settle_location, storage, metadata, online, clock.now_ms()))


async def start_remote(remote: RemoteParts, broker: Broker, started: AsyncExitStack) -> None:
    """Load the metadata of remote segments, and copy and expire segments until `started` unwinds.

    Raises:
        BrokerError: If the metadata topic cannot be created or read.
        KafkalogError: If the storage does not have the known segments.
    """
    from kafkalog_broker.remote.remote_log_metadata_manager import metadata_topic_configs

    topic_config = broker.config.remote_log_metadata_topic
    topic = await broker.ensure_topic(
        REMOTE_LOG_METADATA_TOPIC, topic_config.partitions, metadata_topic_configs(topic_config)
    )
    await remote.manager.start(topic, remote.settle)
    run_until_stop(started, remote.manager.run())
