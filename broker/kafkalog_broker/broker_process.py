"""The process of a broker: start, wait for a reason to stop, stop, and the exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.listeners import format_address
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.security.new_scram_users import NewUser
from kafkalog_spark.exit_codes import FAILED, OK

if TYPE_CHECKING:
    from kafkalog_broker.broker import Broker
    from kafkalog_broker.mirror.served_mirror import ServedMirror
    from kafkalog_broker.server import Server

GC_THRESHOLDS = (10_000, 2, 250)
"""Thresholds of Python's garbage collector.

The first one is the number of net allocations (allocations minus deallocations) after which the youngest generation is
collected. A large request, or a start with many logs, creates a million objects. With Python's default thresholds the
collector would traverse them repeatedly while they are being built."""

_THREAD_JOIN_TIMEOUT_S = 0.2
"""Time for the idle threads of remote storage to end."""

_PROCESS_STARTED_S = time.monotonic()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of the command that are not properties.

    Attributes:
        new_users: SCRAM users to create; an existing user keeps its password.
        metrics: Host and port at which metrics are served, or None.
        mirror: Mirror of another cluster's topics to run, or None.
        stop_at_eof: Stop when stdin is closed.
        control_fd: File descriptor over which a test controls the broker (`testing_support/control.py`), or None.
    """

    new_users: Sequence[NewUser] = ()
    metrics: tuple[str, int] | None = None
    mirror: ServedMirror | None = None
    stop_at_eof: bool = False
    control_fd: int | None = None


def run_broker(config: BrokerConfig, options: ProcessOptions) -> int:
    """Run a broker until it is stopped or fails, and return the exit code.

    Raises:
        KafkalogError, OSError: If the broker cannot start.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serve(config, options))


async def serve(config: BrokerConfig, options: ProcessOptions) -> int:
    """As `run_broker`, in the running event loop of the main thread."""
    gc.set_threshold(*GC_THRESHOLDS)
    stop = asyncio.Event()
    _set_stop_on_signals(stop, at_eof=options.stop_at_eof)
    from kafkalog_broker import server as servers  # imported here, so that a wrong configuration is reported quickly

    start_options = servers.Options(
        options.new_users, options.metrics, options.mirror, progress_logger(), stop_requested=stop
    )
    control = None
    if options.control_fd is not None:
        from kafkalog_broker.testing_support.control import Control  # only tests pass --control-fd

        control = Control(options.control_fd)
        start_options = replace(start_options, clock=control.clock, scheduler=control.timers)
    try:
        server = await servers.Server.start(config, start_options)
    except servers.StartStopped:
        _log.info("stopped before the start was complete")
        return OK
    # The objects of modules are never freed. A full collection would traverse them and block the event loop.
    gc.freeze()
    control_task = None if control is None else asyncio.create_task(control.serve(server))
    _print_started(server, config)
    await _wait_for_stop_or_failure(stop, server.broker)
    if control_task is not None:
        control_task.cancel()
    return await _stop_server(server, config)


def _set_stop_on_signals(stop: asyncio.Event, *, at_eof: bool) -> None:
    """Set `stop` at the first SIGTERM or SIGINT, and with `at_eof` when stdin is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _handle_signal, stop, number)
    if at_eof:
        threading.Thread(target=_wait_for_eof, args=(loop, stop), daemon=True).start()


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


def _print_started(server: Server, config: BrokerConfig) -> None:
    """Print the line on stdout by which users and supervisors recognize that the broker is ready."""
    broker = server.broker
    partitions = sum(topic.partitions for topic in broker.topics)
    addresses = " and ".join(format_address(listener.host, listener.port) for listener in broker.advertised)
    metrics = server.metrics_address
    print(
        f"kafkalog-broker serves {addresses}, log.dirs {','.join(config.log_dirs)}, {partitions} partitions, "
        f"started in {(time.monotonic() - _PROCESS_STARTED_S) * 1000:.0f} ms"
        f"{'' if metrics is None else f', metrics at http://{format_address(*metrics)}/metrics'}",
        flush=True,
    )


async def _wait_for_stop_or_failure(stop: asyncio.Event, broker: Broker) -> None:
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(broker.lifecycle.failed.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _stop_server(server: Server, config: BrokerConfig) -> int:
    """Stop the server, log how it stopped, and return the exit code.

    Does not return, but ends the process, if a thread is still waiting for remote storage: the interpreter would wait
    for that thread. All logs are closed then.
    """
    broker = server.broker
    stop_began = time.monotonic()
    await server.stop()
    took_ms = (time.monotonic() - stop_began) * 1000
    remote_threads_ended = broker.remote is None or await asyncio.to_thread(_join_remote_threads)
    exit_code = _report_stop(broker, config, took_ms)
    if not remote_threads_ended:
        _log.warning("abandoning a request to remote storage that has not been answered")
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    return exit_code


def _join_remote_threads() -> bool:
    """Wait a short time for the threads of remote storage to end; False if one is still waiting for a response."""
    from kafkalog_broker.remote.remote_log_manager import THREAD_NAMES  # loaded where there is remote storage

    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAMES)]
    deadline = time.monotonic() + _THREAD_JOIN_TIMEOUT_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return not any(thread.is_alive() for thread in threads)


def _report_stop(broker: Broker, config: BrokerConfig, took_ms: float) -> int:
    """Report how the broker stopped, and return the exit code."""
    if broker.lifecycle.failed.is_set():
        reason = broker.lifecycle.failure or f"all log directories have failed: {','.join(config.log_dirs)}"
        print(f"kafkalog-broker: stopped: {reason}", file=sys.stderr)
        return FAILED
    if broker.logs.to_recover:
        unclean = ", ".join(map(str, broker.logs.to_recover))
        _log.warning("stopped in %.0f ms; the next start has to recover %s", took_ms, unclean)
    else:
        _log.info("stopped cleanly in %.0f ms", took_ms)
    return OK
