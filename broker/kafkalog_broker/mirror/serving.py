"""A broker that serves a mirror while it copies: the mirror as one of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.mirror.command import summary
from kafkalog_broker.mirror.mirror import Mirror, MirrorOptions
from kafkalog_broker.mirror.mirror_file import check_is_mirror, keep_own_groups
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import is_internal

_log = logging.getLogger(__name__)

_EVERY_S = 60.0
"""Between two lines that say how far it is."""


class ServedMirror:
    """Mirror of a broker. mirror: None until it runs. source: the cluster's addresses, for people."""

    def __init__(self, options: MirrorOptions) -> None:
        self._options = options
        self.source = ",".join(f"{host}:{port}" for host, port in options.bootstrap)
        self.mirror: Mirror | None = None

    def check_directory(self, topics: TopicRegistry) -> None:
        """Raise OtherSource when topics lie here that no mirror has made. From now on its groups are the broker's own.
        Raises CorruptFile, UnsupportedFormat, OSError."""
        check_is_mirror(self._options.directory, is_empty=all(is_internal(topic.name) for topic in topics))
        keep_own_groups(self._options.directory)

    async def run(
        self,
        logs: LogManager,
        topics: TopicRegistry,
        config: BrokerConfig,
        workers: Workers,
        clock: Clock,
        on_deleted: Callable[[str], Awaitable[None]],
        on_failure: Callable[[str], None],
    ) -> None:
        """Mirror until it is cancelled. on_failure: it cannot go on, in words."""
        self.mirror = mirror = Mirror(self._options, logs, topics, config, workers, clock, on_deleted=on_deleted)
        telling = asyncio.create_task(_tell(mirror))
        try:
            await mirror.run()
        except (KafkalogError, OSError) as error:
            _log.error("the mirror of %s cannot go on: %s", self.source, error)
            on_failure(f"the mirror of {self.source} cannot go on: {error}")
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling


async def _tell(mirror: Mirror) -> None:
    before = 0
    while True:
        await asyncio.sleep(_EVERY_S)
        _log.info("mirror: %s", summary(mirror, before, _EVERY_S))
        before = mirror.received_bytes
