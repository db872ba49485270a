"""The command kafkalog-mirror: runs a mirror until it is complete or stopped. `__main__` parses the command line.

Logs go to stderr. SIGTERM and SIGINT stop the mirror cleanly; after kill -9 the next start continues at the log end
offsets.
Exit codes: 0 after a stop by signal, or if the copy is complete with --once; 1 if the mirror could not start, a log
directory has failed, or with --once a partition could not be copied; 2 if the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.server_properties import DEFAULTS_WITHOUT_FILE
from kafkalog_broker.mirror.mirror import Mirror
from kafkalog_broker.mirror.mirror_options import MirrorOptions, command_options
from kafkalog_broker.mirror.progress import TICK_S, Progress
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.runtime.logging_setup import set_up_logging
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import FAILED, OK, WRONG_USAGE

_log = logging.getLogger(__name__)


def main(arguments: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    set_up_logging(arguments.log_level)
    try:
        options = command_options(arguments)
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
    config = BrokerConfig.from_properties(DEFAULTS_WITHOUT_FILE, {"log.dirs": str(options.directory)})
    clock, workers = SystemClock(), Workers()
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    # Before any log is opened, so that a signal never leaves one open.
    for number in (signal.SIGTERM, signal.SIGINT):
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
        started_s = time.monotonic()
        try:
            await _until_done(mirror, logs, clock, stop, failed, once=options.once)
        finally:
            workers.shutdown()
            logs.shutdown()
    finally:
        dirs.close()
    seconds = time.monotonic() - started_s
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
