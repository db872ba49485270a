"""Objects that the copier, the expirer and the reads of remote segments share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.remote.remote_partition import RemoteCounts
from kafkalog_broker.runtime.clock import Clock
from kafkalog_spark.log.remote.remote_storage import RemoteStorage


@dataclass(frozen=True, slots=True)
class RemoteServices:
    """Objects that the copier, the expirer and the reads of remote segments share.

    Attributes:
        config: Returns the current configuration.
        call: Runs a function that waits for a local disk on another thread.
        counts: Totals since the start.
    """

    config: Callable[[], BrokerConfig]
    storage: RemoteStorage
    metadata: RemoteLogMetadataManager
    clock: Clock
    call: Callable[..., Awaitable[Any]]
    counts: RemoteCounts
