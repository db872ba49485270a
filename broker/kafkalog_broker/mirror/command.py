"""The command kafkalog-mirror.

    kafkalog-mirror --bootstrap kafka1:9092 --log-dir ./mirror --topics 'orders|clicks.*'
    kafkalog-mirror --bootstrap kafka1:9093 --log-dir ./mirror --topics orders --once \\
        -X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=mirror \\
        -X sasl.password=env:MIRROR_PASSWORD -X ssl.ca.location=ca.pem

Logs go to stderr. SIGTERM and SIGINT stop it cleanly; after kill -9 the next start goes on where the logs end.
Exit codes: 0 stopped when it was asked to, or done with --once; 1 could not start, a log directory has failed, or with
--once a partition could not be copied; 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kafkalog_broker.clock import SystemClock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.server_properties import EMBEDDED_DEFAULTS
from kafkalog_broker.mirror.arguments import parse_bytes, parse_topics, settings_of
from kafkalog_broker.mirror.mirror import Mirror, MirrorOptions
from kafkalog_broker.mirror.progress import TICK_S, Progress
from kafkalog_broker.mirror.source import parse_bootstrap
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.storage.log_directory import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.workers import Workers
from kafkalog_spark.commands.exits import Parser
from kafkalog_spark.errors import KafkalogError, OptionError

OK, FAILED, WRONG_USAGE = 0, 1, 2
_LEVELS = ("debug", "info", "warning", "error")
_log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = Parser(
        prog="kafkalog-mirror",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Copy topics of a Kafka cluster (0.11 to 4.x) into a log directory, batch by batch as its brokers "
        "have them,\nand keep following them. The directory is read with spark.read.format('kafkalog').",
        epilog="""examples:
  kafkalog-mirror --bootstrap kafka1:9092 --log-dir ./mirror --topics 'orders|clicks.*'
  kafkalog-mirror --bootstrap kafka1:9092 --log-dir ./mirror --topics orders --once
  kafkalog-mirror --bootstrap kafka1:9093 --log-dir ./mirror --topics orders \\
      -X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-512 \\
      -X sasl.username=mirror -X sasl.password=env:MIRROR_PASSWORD -X ssl.ca.location=ca.pem

-X takes librdkafka's names of properties; a value env:NAME is taken from the environment, so that no password stands
in the list of processes. docs/mirror.md says more.""",
    )
    made.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...", help="nodes of the cluster")
    made.add_argument("--log-dir", required=True, metavar="DIR", help="where to; a directory for each cluster")
    made.add_argument("--topics", required=True, metavar="REGEX", help="topics whose whole name matches")
    made.add_argument("--internal", action="store_true", help="internal topics too, such as __consumer_offsets")
    made.add_argument("--once", action="store_true", help="stop at the ends that the topics have at the start")
    made.add_argument(
        "--max-bytes-per-second", type=parse_bytes, metavar="N", help="of records; such as 50000000 or 50M"
    )
    made.add_argument("-X", action="append", default=[], metavar="NAME=VALUE", help="a property of the client")
    made.add_argument("--log-level", choices=_LEVELS, default="info", help="what to log on stderr (default: info)")
    return made


def options_of(arguments: argparse.Namespace) -> MirrorOptions:
    """Raises OptionError."""
    return MirrorOptions(
        bootstrap=parse_bootstrap(arguments.bootstrap),
        directory=Path(arguments.log_dir),
        topics=parse_topics("--topics", arguments.topics),
        internal=arguments.internal,
        once=arguments.once,
        max_bytes_per_second=arguments.max_bytes_per_second,
        settings=settings_of(arguments.X),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Mirror until it is asked to stop, or is done; the exit code."""
    arguments = parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr, level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s (%(name)s)"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
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
    """The log directory locked and loaded, mirrored into until it is done or stopped, closed. Raises KafkalogError,
    OSError."""
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
