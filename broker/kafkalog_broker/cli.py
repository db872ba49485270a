"""The command kafkalog-broker.

    kafkalog-broker --log-dir ./data                               one node on 127.0.0.1:9092, topics created on demand
    kafkalog-broker server.properties --override num.partitions=4  Kafka's own configuration file
    kafkalog-broker --log-dir ./mirror --mirror-of kafka1:9092     serves another cluster's topics, read-only

One line on stdout reports when the broker serves. Logs go to stderr. The first SIGTERM or SIGINT stops the broker
cleanly, the second one immediately. Exit codes: 0 after a stop by signal; 1 if the broker could not start, or if it
failed, so that a supervisor may start it again; 2 if the command line or the configuration is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listeners import format_address
from kafkalog_broker.config.property_names import nearest_property
from kafkalog_broker.config.server_properties import EMBEDDED_DEFAULTS, parse_overrides, read_server_properties
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.runtime.logging_setup import set_up_logging
from kafkalog_broker.runtime.optional_packages import importing
from kafkalog_broker.security.new_scram_users import NewUser, parse_add_scram
from kafkalog_spark.argument_parser import Parser
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import FAILED, OK, WRONG_USAGE

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker
    from kafkalog_broker.mirror.served_mirror import ServedMirror

ALL_TOPICS = ".*"
_HOST, _PORT = "127.0.0.1", 9092  # as in EMBEDDED_DEFAULTS
_STARTED = time.monotonic()
_THREADS_END_S = 0.2  # time limit for idle threads to end
COLLECTIONS = (10_000, 2, 250)
"""Thresholds of Python's garbage collector: the youngest generation is collected after that many net allocations. With
Python's default of 700, collections took a large share of the time while many requests waited."""
_LEVELS = ("debug", "info", "warning", "error")
_log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command_line = Parser(
        prog="kafkalog-broker",
        description="A Kafka-compatible broker that writes Kafka's own log directories.",
        epilog="Property names and values are Kafka's. Without a file: 127.0.0.1:9092, topics are created on demand. "
        "The address is --host and --port, or the property listeners (for clients: advertised.listeners). "
        "Each line of the log ends with its logger; kafka-configs --entity-type broker-loggers sets its level.",
    )
    command_line.add_argument("properties", nargs="?", metavar="server.properties", help="Kafka's configuration file")
    command_line.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="set a property; may be repeated"
    )
    command_line.add_argument("--log-dir", metavar="DIR", help="short for --override log.dirs=DIR")
    command_line.add_argument(
        "--host", help="short for --override listeners=PLAINTEXT://HOST:PORT (default: 127.0.0.1)"
    )
    command_line.add_argument("--port", type=_port, help="port of --host (default: 9092); 0 for any free port")
    command_line.add_argument(
        "--add-scram", action="append", default=[], metavar="SCRAM-SHA-512=[name=...,password=...]",
        help="create a SCRAM user, unless it exists already; may be repeated",
    )  # fmt: skip
    command_line.add_argument(
        "--metrics", type=_address, metavar="HOST:PORT",
        help="serve Prometheus metrics, /healthz and /readyz there, without TLS (needs the extra [metrics])",
    )  # fmt: skip
    mirror = command_line.add_argument_group("a read-only broker over a mirror of another cluster (docs/mirror.md)")
    mirror.add_argument("--mirror-of", metavar="HOST:PORT,...", help="nodes of the cluster whose topics are copied")
    mirror.add_argument(
        "--mirror-topics", metavar="REGEX", default=ALL_TOPICS, help="topics whose whole name matches (default: all)"
    )
    mirror.add_argument("--max-bytes-per-second", metavar="N", help="limit of fetched bytes, such as 50000000 or 50M")
    mirror.add_argument(
        "-X", action="append", default=[], metavar="NAME=VALUE", help="a property of the client that copies"
    )
    command_line.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="what to log on stderr (default: info)"
    )
    command_line.add_argument(
        "--stop-at-eof",
        action="store_true",
        help="stop when stdin is closed, so that the broker ends with its parent process",
    )
    command_line.add_argument("--control-fd", type=int, help=argparse.SUPPRESS)  # for testing_support/control.py
    command_line.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    return command_line


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        return host.strip("[]") or _HOST, _port(port)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT") from None


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected a number from 0 to 65535")
    return int(text)


def configuration(arguments: argparse.Namespace) -> BrokerConfig:
    """Return the configuration from file, overrides and defaults. Raises ConfigError."""
    overrides = parse_overrides(arguments.override)
    if arguments.log_dir is not None:
        overrides["log.dirs"] = arguments.log_dir
    if arguments.host is not None or arguments.port is not None:
        if arguments.properties is not None or "listeners" in overrides:
            raise ConfigError(
                "--host and --port cannot be combined with a configuration file or the property listeners"
            )
        port = _PORT if arguments.port is None else arguments.port
        overrides["listeners"] = f"PLAINTEXT://{format_address(arguments.host or _HOST, port)}"
    if arguments.mirror_of is not None:
        overrides["auto.create.topics.enable"] = "false"  # a mirror has only topics of the source
    if arguments.properties is not None:
        return BrokerConfig.from_properties(read_server_properties(arguments.properties), overrides)
    if not overrides.keys() & {"log.dirs", "log.dir"}:
        raise ConfigError("no log directory: give --log-dir DIR or a configuration file")
    return BrokerConfig.from_properties(EMBEDDED_DEFAULTS, overrides)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker until it is stopped, and return the exit code."""
    arguments = parser().parse_args(argv)
    set_up_logging(arguments.log_level)
    try:
        config = configuration(arguments)
        new_users = parse_add_scram(arguments.add_scram)
        mirror = _make_mirror(arguments, config)
        if arguments.metrics is not None:
            with importing():
                import kafkalog_broker.metrics.serving  # noqa: F401  to report a missing package now
    except (ConfigError, OptionError) as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return WRONG_USAGE
    log_ignored_properties(config)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(config, new_users, arguments, mirror))
    except (KafkalogError, OSError) as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return FAILED


def log_ignored_properties(config: BrokerConfig) -> None:
    """Log the properties that were set and have no effect."""
    for name in config.unknown():
        nearest = nearest_property(name)
        hint = "" if nearest is None else f"; did you mean {nearest}?"
        _log.warning("the unknown property %.200s is ignored%s", name, hint)
    unused = config.without_effect()
    if unused:
        _log.info("without effect in this broker: %s", ", ".join(unused))


def _make_mirror(arguments: argparse.Namespace, config: BrokerConfig) -> ServedMirror | None:
    """Return the mirror to run; None without --mirror-of. Raises OptionError."""
    if arguments.mirror_of is None:
        given = {
            "--mirror-topics": arguments.mirror_topics != ALL_TOPICS,
            "--max-bytes-per-second": arguments.max_bytes_per_second is not None,
            "-X": bool(arguments.X),
        }
        if names := ", ".join(name for name, is_given in given.items() if is_given):
            raise OptionError(f"{names} without --mirror-of has no effect", hint="give --mirror-of HOST:PORT, too")
        return None
    with importing():
        from kafkalog_broker.mirror.__main__ import parse_bytes
        from kafkalog_broker.mirror.mirror_options import serving_options
        from kafkalog_broker.mirror.served_mirror import ServedMirror
    rate = arguments.max_bytes_per_second
    try:
        bound = None if rate is None else parse_bytes(rate)
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"--max-bytes-per-second {error}") from None
    return ServedMirror(
        serving_options(arguments.mirror_of, arguments.mirror_topics, arguments.X, bound, config.log_dirs)
    )


async def _serve(
    config: BrokerConfig,
    new_users: Sequence[NewUser],
    arguments: argparse.Namespace,
    mirror: ServedMirror | None = None,
) -> int:
    # A request with 200 thousand partitions, or a start with 10 thousand logs, creates a million objects, which
    # collections in the meantime would traverse several times.
    gc.set_threshold(*COLLECTIONS)
    from kafkalog_broker.server import (  # imported here, so that a wrong configuration is reported quickly
        Options,
        Server,
    )

    options, control = Options(new_users, arguments.metrics, mirror, progress_logger()), None
    if arguments.control_fd is not None:
        from kafkalog_broker.testing_support.control import Control

        control = Control(arguments.control_fd)
        options = replace(options, clock=control.clock, scheduler=control.timers)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    server = await Server.start(config, options)
    broker = server.broker
    control_task = None if control is None else asyncio.create_task(control.serve(server))
    # The 50 thousand objects of modules are never freed. A full collection would hold the loop to traverse them.
    gc.freeze()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _handle_signal, stop, number)
    if arguments.stop_at_eof:
        threading.Thread(target=_wait_for_eof, args=(loop, stop), daemon=True).start()
    partitions = sum(topic.partitions for topic in broker.topics)
    served = " and ".join(format_address(listener.host, listener.port) for listener in broker.advertised)
    metrics = server.metrics_address
    print(
        f"kafkalog-broker serves {served}, log.dirs {','.join(config.log_dirs)}, {partitions} partitions, "
        f"started in {(time.monotonic() - _STARTED) * 1000:.0f} ms"
        f"{'' if metrics is None else f', metrics at http://{format_address(*metrics)}/metrics'}",
        flush=True,
    )
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(broker.lifecycle.failed.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if control_task is not None:
        control_task.cancel()
    stop_began = time.monotonic()
    await server.stop()
    took_ms = (time.monotonic() - stop_began) * 1000
    has_blocked_threads = broker.remote is not None and await asyncio.to_thread(_has_blocked_threads)
    code = _report_stop(broker, config, took_ms)
    if has_blocked_threads:
        # The interpreter would wait for threads that wait for remote storage. All logs are closed.
        _log.warning("a request to remote storage has no response yet and is abandoned")
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _has_blocked_threads() -> bool:
    """Return True if a thread still waits for a response of remote storage."""
    from kafkalog_broker.remote.remote_log_manager import THREAD_NAMES  # loaded where there is remote storage

    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAMES)]
    deadline = time.monotonic() + _THREADS_END_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return any(thread.is_alive() for thread in threads)


def _report_stop(broker: Broker, config: BrokerConfig, took_ms: float) -> int:
    """Report how the broker stopped, and return the exit code."""
    if broker.lifecycle.failed.is_set():
        why = broker.lifecycle.failure or f"all log directories have failed: {','.join(config.log_dirs)}"
        print(f"kafkalog-broker: stopped: {why}", file=sys.stderr)
        return FAILED
    if broker.logs.to_recover:
        unclean = ", ".join(map(str, broker.logs.to_recover))
        _log.warning("stopped in %.0f ms; the next start has to recover %s", took_ms, unclean)
    else:
        _log.info("stopped cleanly in %.0f ms", took_ms)
    return OK


def _handle_signal(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        _log.warning("second signal: stopping immediately, the next start has to recover")
        os._exit(128 + number)
    _log.info("%s: stopping", signal.Signals(number).name)
    stop.set()


def _wait_for_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


def progress_logger(now_s: Callable[[], float] = time.monotonic) -> Callable[[object], None]:
    """Return a function that logs the progress of loading, at most once a second."""
    last_s = now_s()

    def log_progress(progress: object) -> None:
        nonlocal last_s
        if now_s() - last_s >= 1:
            last_s = now_s()
            _log.info("loading logs: %s", progress)

    return log_progress


def _version() -> str:
    try:
        return metadata.version("kafkalog")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "(not installed)"
