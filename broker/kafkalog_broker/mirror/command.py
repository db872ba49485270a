"""The command kafkalog-mirror; `__main__` has its command line.

Logs go to stderr. SIGTERM and SIGINT stop it cleanly; after kill -9 the next start continues at the log end offsets.
Exit codes: 0 stopped on request, or complete with --once; 1 could not start, a log directory has failed, or with --once
a partition could not be copied; 2 wrong command line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.server_properties import EMBEDDED_DEFAULTS
from kafkalog_broker.mirror.client_properties import ClientSettings, client_settings
from kafkalog_broker.mirror.mirror import Mirror, MirrorOptions
from kafkalog_broker.mirror.mirror_file import check_is_mirror, keep_own_groups
from kafkalog_broker.mirror.progress import LOG_INTERVAL_S, TICK_S, Progress, summary
from kafkalog_broker.mirror.source import parse_bootstrap
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.runtime.clock import Clock, SystemClock
from kafkalog_broker.runtime.logging_setup import set_up_logging
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import FAILED, OK, WRONG_USAGE
from kafkalog_spark.format.names import is_internal

_log = logging.getLogger(__name__)


def parse_topics(option: str, text: str) -> re.Pattern[str]:
    """Parse a pattern for whole topic names. Raises OptionError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(f"{option} {text!r} is not a regular expression: {error}") from None


def settings_of(properties: Iterable[str]) -> ClientSettings:
    """Parse the properties of -X NAME=VALUE; values env:NAME are read from the environment. Raises OptionError."""
    settings = client_settings(map(_from_environment, properties))
    settings.tls_context()
    return settings


def _from_environment(text: str) -> str:
    name, _, value = text.partition("=")
    variable = value.removeprefix("env:")
    if variable == value:
        return text
    if variable not in os.environ:
        raise OptionError(f"-X {name}: the environment variable {variable} is not set")
    return f"{name}={os.environ[variable]}"


def serving_options(
    bootstrap: str, topics: str, properties: Iterable[str], max_bytes_per_second: int | None, directories: Iterable[str]
) -> MirrorOptions:
    """Return the settings of a mirror that a broker serves while it copies. Raises OptionError."""
    paths = [Path(directory) for directory in directories]
    if len(paths) != 1:
        raise OptionError(
            f"--mirror-of with {len(paths)} log directories", hint="a mirror uses one log directory: give one"
        )
    return MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap),
        directory=paths[0],
        topics=parse_topics("--mirror-topics", topics),
        max_bytes_per_second=max_bytes_per_second,
        settings=settings_of(properties),
        own_internal_topics=True,
    )


class ServedMirror:
    """Mirror of a broker that serves it while it copies.

    Attributes:
        source: Addresses of the cluster, for messages.
        mirror: None until it runs.
    """

    def __init__(self, options: MirrorOptions) -> None:
        self._options = options
        self.source = ",".join(f"{host}:{port}" for host, port in options.bootstrap)
        self.mirror: Mirror | None = None

    def check_directory(self, topics: TopicRegistry) -> None:
        """Check that the directory is a mirror or empty, and record that its groups are the broker's own.

        Raises:
            OtherSource: If it has topics that no mirror created.
            CorruptFile, UnsupportedFormat, OSError: If the mirror's file cannot be read or written.
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
        before = 0
        while True:
            await asyncio.sleep(LOG_INTERVAL_S)
            _log.info("mirror: %s", summary(mirror, before, LOG_INTERVAL_S))
            before = mirror.received_bytes


def options_of(arguments: argparse.Namespace) -> MirrorOptions:
    """Return the settings of a command line. Raises OptionError."""
    return MirrorOptions(
        bootstrap=parse_bootstrap(arguments.bootstrap),
        directory=Path(arguments.log_dir),
        topics=parse_topics("--topics", arguments.topics),
        internal=arguments.internal,
        once=arguments.once,
        max_bytes_per_second=arguments.max_bytes_per_second,
        settings=settings_of(arguments.X),
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    set_up_logging(arguments.log_level)
    try:
        options = options_of(arguments)
    except OptionError as error:
        print(f"kafkalog-mirror: {error}", file=sys.stderr)
        return WRONG_USAGE
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(run_mirror(options))
    except (KafkalogError, OSError) as error:
        print(f"kafkalog-mirror: {error}", file=sys.stderr)
        return FAILED


async def run_mirror(options: MirrorOptions) -> int:
    """Mirror until complete or stopped, and return the exit code. Raises KafkalogError, OSError."""
    config = BrokerConfig.from_properties(EMBEDDED_DEFAULTS, {"log.dirs": str(options.directory)})
    clock, workers = SystemClock(), Workers()
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # before anything is opened that must be closed
        loop.add_signal_handler(number, stop.set)
    dirs = open_log_dirs(config.log_dirs, config.node_id, clock.now_ms())
    try:
        failed = asyncio.Event()
        topics = TopicRegistry(dirs.all)
        topics.load()
        logs = LogManager(
            dirs, config, topics, clock, call_soon=loop.call_soon_threadsafe, run_blocking=workers.run_in_background,
            on_all_offline=failed.set,
        )  # fmt: skip
        await workers.run_blocking(logs.load)
        mirror = Mirror(options, logs, topics, workers, clock)
        begun = time.monotonic()
        try:
            await _until_done(mirror, logs, clock, stop, failed, once=options.once)
        finally:
            workers.shutdown()
            logs.shutdown()
    finally:
        dirs.close()
    seconds = time.monotonic() - begun
    _log.info("stopped; received %.1f MB in %.1f s, lag %d", mirror.received_bytes / 1e6, seconds, mirror.lag)
    for name, why in mirror.failed.items():
        _log.error("%s was not copied completely: %s", name, why)
    return FAILED if failed.is_set() or (options.once and mirror.failed) else OK


async def _until_done(
    mirror: Mirror, logs: LogManager, clock: SystemClock, stop: asyncio.Event, failed: asyncio.Event, *, once: bool
) -> None:
    progress = Progress(mirror, once=once)
    running = asyncio.create_task(mirror.run())
    waiting = [running, asyncio.create_task(stop.wait()), asyncio.create_task(failed.wait())]
    try:
        while not (await asyncio.wait(waiting, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            logs.tick(clock.now_ms())
            progress.show()
    finally:
        for task in waiting:
            if task is not running or not running.done():
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        progress.close()
