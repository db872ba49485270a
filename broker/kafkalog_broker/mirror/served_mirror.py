"""A mirror that a broker runs while it serves the mirrored topics (kafkalog-broker --mirror-of)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from kafkalog_broker.mirror.mirror import Mirror
from kafkalog_broker.mirror.mirror_file import check_is_mirror, keep_own_groups
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.progress import LOG_INTERVAL_S, summary
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import is_internal

_log = logging.getLogger(__name__)


class ServedMirror:
    """A mirror, and the broker's conditions for it.

    Attributes:
        source: Addresses of the mirrored cluster, for messages.
        mirror: The running mirror; None before `run`.
    """

    def __init__(self, options: MirrorOptions) -> None:
        self._options = options
        self.source = ",".join(f"{host}:{port}" for host, port in options.bootstrap)
        self.mirror: Mirror | None = None

    def check_directory(self, topics: TopicRegistry) -> None:
        """Check that the directory is a mirror or empty, and record that its consumer groups are the broker's own.

        Raises:
            OtherSource: If it has topics that no mirror created.
            CorruptFile, UnsupportedFormat, OSError: If `kafkalog.mirror.json` cannot be read or written.
        """
        check_is_mirror(self._options.directory, is_empty=all(is_internal(topic.name) for topic in topics))
        keep_own_groups(self._options.directory)

    async def run(
        self,
        logs: LogManager,
        topics: TopicRegistry,
        workers: Workers,
        clock: Clock,
        on_deleted: Callable[[str], Awaitable[None]],
        on_failure: Callable[[str], None],
    ) -> None:
        """Mirror until cancelled.

        Args:
            on_deleted: See `Mirror.on_deleted`.
            on_failure: Called with a message if the mirror cannot continue.
        """
        self.mirror = mirror = Mirror(self._options, logs, topics, workers, clock, on_deleted=on_deleted)
        logging_task = asyncio.create_task(self._log_progress(mirror))
        try:
            await mirror.run()
        except (KafkalogError, OSError) as error:
            _log.error("the mirror of %s cannot continue: %s", self.source, error)
            on_failure(f"the mirror of {self.source} cannot continue: {error}")
        finally:
            logging_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await logging_task

    async def _log_progress(self, mirror: Mirror) -> None:
        received_before = 0
        while True:
            await asyncio.sleep(LOG_INTERVAL_S)
            _log.info("mirror: %s", summary(mirror, received_before, LOG_INTERVAL_S))
            received_before = mirror.received_bytes
