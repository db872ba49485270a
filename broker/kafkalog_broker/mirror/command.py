"""The command kafkalog-mirror (`__main__` has its examples). Logs go to stderr. SIGTERM and SIGINT stop it cleanly;
after kill -9 the next start goes on where the logs end. Exit codes: 0 stopped when it was asked to, or done with
--once; 1 could not start, a log directory has failed, or with --once a partition could not be copied; 2 the command
line is wrong."""

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
from typing import TextIO

from tqdm import tqdm

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.server_properties import EMBEDDED_DEFAULTS
from kafkalog_broker.mirror.client_properties import ClientSettings, client_settings
from kafkalog_broker.mirror.mirror import Mirror, MirrorOptions
from kafkalog_broker.mirror.mirror_file import check_is_mirror, keep_own_groups
from kafkalog_broker.mirror.source import parse_bootstrap
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.runtime.clock import Clock, SystemClock
from kafkalog_broker.runtime.logging_setup import set_up_logging
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_directory import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.format.names import is_internal

_log = logging.getLogger(__name__)


def parse_topics(option: str, text: str) -> re.Pattern[str]:
    """The pattern that whole names are to match. Raises OptionError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(f"{option} {text!r} is no regular expression: {error}") from None


def settings_of(properties: Iterable[str]) -> ClientSettings:
    """Properties of -X NAME=VALUE; values env:NAME are taken from the environment. Raises OptionError."""
    settings = client_settings(map(_from_environment, properties))
    settings.tls_context()
    return settings


def _from_environment(text: str) -> str:
    name, _, value = text.partition("=")
    variable = value.removeprefix("env:")
    if variable == value:
        return text
    if variable not in os.environ:
        raise OptionError(f"-X {name}: there is no environment variable {variable}")
    return f"{name}={os.environ[variable]}"


def serving_options(
    bootstrap: str, topics: str, properties: Iterable[str], max_bytes_per_second: int | None, directories: Iterable[str]
) -> MirrorOptions:
    """Settings of a broker that mirrors while it serves. Raises OptionError."""
    paths = [Path(directory) for directory in directories]
    if len(paths) != 1:
        raise OptionError(
            f"--mirror-of with {len(paths)} log directories", hint="a mirror lies in one log directory: give one"
        )
    return MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap),
        directory=paths[0],
        topics=parse_topics("--mirror-topics", topics),
        max_bytes_per_second=max_bytes_per_second,
        settings=settings_of(properties),
        own_internal_topics=True,
    )


_EVERY_S = 60.0  # between two lines of a log that say how far it is
TICK_S = 1.0  # how often `show` is to be called


def summary(mirror: Mirror, received_before: int, seconds: float) -> str:
    """Progress in a line: partitions, lag, MB a second, partitions that stand still."""
    rate = (mirror.received_bytes - received_before) / max(seconds, 1e-9) / 1e6
    still = sorted(partition.name for partition in mirror.partitions.values() if partition.trouble is not None)
    waiting = f", {len(still)} stand still: {', '.join(still[:3])}{' ...' if len(still) > 3 else ''}" if still else ""
    return f"{len(mirror.partitions)} partitions, lag {mirror.lag:,} offsets, {rate:.1f} MB/s{waiting}"


class Progress:
    """How far a mirror is: a bar with --once, a line that is written over on a terminal, a line a minute elsewhere.
    stream: where a bar or a line is drawn, if that is a terminal."""

    def __init__(self, mirror: Mirror, *, once: bool, stream: TextIO = sys.stderr) -> None:
        self._mirror = mirror
        self._stream = stream
        self._once = once
        self._is_terminal = stream.isatty()
        self._bar: tqdm[None] | None = None
        self._told_at, self._told_bytes = time.monotonic(), 0

    def show(self) -> None:
        now = time.monotonic()
        if self._is_terminal and self._once:
            self._draw_bar()
        elif self._is_terminal or now - self._told_at >= _EVERY_S:
            line = summary(self._mirror, self._told_bytes, now - self._told_at)
            self._told_at, self._told_bytes = now, self._mirror.received_bytes
            if self._is_terminal:
                print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
            else:
                _log.info("%s", line)

    def _draw_bar(self) -> None:
        targets = self._mirror.targets
        if targets is None:
            return
        partitions = self._mirror.partitions
        total = done = 0
        for key, end in targets.items():
            log = partitions[key].log if key in partitions else None
            total += max(end - (0 if log is None else log.log_start_offset), 0)
            done += 0 if log is None else max(min(log.log_end_offset, end) - log.log_start_offset, 0)
        if self._bar is None:
            self._bar = tqdm(total=total, unit=" offsets", unit_scale=True, file=self._stream)
        self._bar.total = total
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        """Leave the terminal as it should be."""
        if self._bar is not None:
            self._draw_bar()
            self._bar.close()
        elif self._is_terminal and not self._once:
            print(file=self._stream)


class ServedMirror:
    """The mirror of a broker that serves it while it copies. mirror: None until it runs. source: the cluster's
    addresses, for people."""

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
        telling = asyncio.create_task(self._tell(mirror))
        try:
            await mirror.run()
        except (KafkalogError, OSError) as error:
            _log.error("the mirror of %s cannot go on: %s", self.source, error)
            on_failure(f"the mirror of {self.source} cannot go on: {error}")
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def _tell(self, mirror: Mirror) -> None:
        before = 0
        while True:
            await asyncio.sleep(_EVERY_S)
            _log.info("mirror: %s", summary(mirror, before, _EVERY_S))
            before = mirror.received_bytes


OK, FAILED, WRONG_USAGE = 0, 1, 2


def options_of(arguments: argparse.Namespace) -> MirrorOptions:
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
    """Until it is done or stopped. Raises KafkalogError, OSError."""
    config = BrokerConfig.from_properties(EMBEDDED_DEFAULTS, {"log.dirs": str(options.directory)})
    clock, workers = SystemClock(), Workers()
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # before there is anything to be closed
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
        mirror = Mirror(options, logs, topics, config, workers, clock)
        begun = time.monotonic()
        try:
            await _until_done(mirror, logs, clock, stop, failed, once=options.once)
        finally:
            workers.shutdown()
            logs.shutdown()
    finally:
        dirs.close()
    seconds = time.monotonic() - begun
    _log.info("%.1f MB came in %.1f s; stopped, lag %d", mirror.received_bytes / 1e6, seconds, mirror.lag)
    for name, why in mirror.failed.items():
        _log.error("%s was not copied to its end: %s", name, why)
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
