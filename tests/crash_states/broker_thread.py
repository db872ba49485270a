"""A broker in a thread of this process, with a manual clock, and a client that knows when it was answered."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker import server as server_module
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.protocol.client_messages import decode_response, encode_client_request
from kafkalog_broker.security.scram_users import NewUser
from kafkalog_broker.server import Server
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.manual_clock import ManualClock
from tests.crash_states.recorder import Recorder

T = TypeVar("T")

BASE_PROPERTIES: Mapping[str, object] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.index.size.max.bytes": 4096,  # a state holds the bytes of all files
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "log.retention.ms": -1,
    "log.cleaner.enable": "false",
    "num.recovery.threads.per.data.dir": 1,
}
"""Properties of all workloads and of the restarts after them."""

WAIT_S = 60.0
"""A broker that does not answer in that time hangs."""

EndOffsets = dict[tuple[str, int], int]


class ThreadedServer(Server):
    """recovered: end offsets of all logs after recovery, before a coordinator could append to them."""

    recovered: EndOffsets

    def _make_coordinators(self, started: AsyncExitStack) -> None:
        self.recovered = {}
        for key, entry in self.logs.entries.items():
            if entry.is_online:
                log = self.logs.get(*key)
                if log is not None:
                    self.recovered[key] = log.log_end_offset
        super()._make_coordinators(started)


class BrokerThread:
    """A broker between `start` and `stop`. `run` runs something in its event loop. properties: with `log.dirs`."""

    def __init__(
        self,
        properties: Mapping[str, object],
        clock: ManualClock,
        new_users: tuple[NewUser, ...] = (),
    ) -> None:
        self.clock = clock
        self.properties = {**BASE_PROPERTIES, **properties}
        self.new_users = new_users
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self.server: ThreadedServer

    def start(self) -> None:
        """Return when it serves and its coordinators are loaded. Raises what `Server.start` raises."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="broker", daemon=True)
        self._thread.start()
        try:
            started.result(WAIT_S)
        except BaseException:
            self._thread.join(WAIT_S)
            self._thread = None
            raise
        self.run(_loaded)

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        try:
            config = BrokerConfig.from_properties({key: str(value) for key, value in self.properties.items()})
            self.server = ThreadedServer(config, self.clock, self.new_users)
            await self.server.start()
        except BaseException as error:  # noqa: BLE001 - handed on to the thread that started it
            started.set_exception(error)
            return
        started.set_result(None)
        await self._ends.wait()

    @property
    def port(self) -> int:
        return self.server.advertised[0].port

    def run(self, what: Callable[[ThreadedServer], Awaitable[T]]) -> T:
        """Run a coroutine in the broker's event loop and return its result."""

        async def go() -> T:
            return await what(self.server)

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result(WAIT_S)

    def tick(self, ms: int = 0) -> None:
        """Let `ms` pass and do what is due: retention, checkpoints, timeouts."""
        self.clock.advance(ms)
        self.run(lambda server: server.catch_up())

    def clean(self) -> None:
        """Let the cleaner compact until no log is due."""

        async def all_due(server: ThreadedServer) -> None:
            while await server.run_blocking(server.logs.cleaner.clean_filthiest):
                pass

        self.run(all_due)

    def stop(self) -> None:
        """Stop cleanly. Raises RuntimeError unless each log directory got its clean-shutdown marker."""
        self.run(lambda server: server.stop())
        self._end()
        if self.server.logs.to_recover:
            raise RuntimeError(f"not stopped cleanly: {self.server.logs.to_recover}")

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        assert self._thread is not None
        self._thread.join(WAIT_S)
        self._thread = None


async def _loaded(server: ThreadedServer) -> None:
    await server.loading


class Answer(NamedTuple):
    """A response as plain values. sent_at, acked_at: points of the trace at which the request left the client and the
    response left the broker; 0 without a recorder."""

    body: dict[str, Any]
    sent_at: int
    acked_at: int


class Client:
    """One connection, one request at a time, as a plain client of the protocol. Not thread-safe."""

    def __init__(self, port: int, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self._port, self._received = self._socket.getsockname()[1], 0
        self._already_sent = recorder.sent_bytes(self._port) if recorder is not None else 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: int, version: int, /, **fields: Any) -> Answer:
        """Send a request with those of `fields` that its version has; wait for the response."""
        data = encode_client_request(request_entity(key, version, fields, {}), "crash-states")
        sent_at = 0 if self._recorder is None else len(self._recorder.events)
        self._socket.sendall(struct.pack(">i", len(data)) + data)
        size = struct.unpack(">i", self._receive(4))[0]
        body = self._receive(size)
        acked_at = 0
        if self._recorder is not None:
            acked_at = self._recorder.sent_at(self._port, self._already_sent + self._received)
        return Answer(plain(decode_response(key, version, body)), sent_at, acked_at)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        self._received += size
        return bytes(data)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the product's logs, which thousands of starts would fill; ticks come from the manual clock only."""
    levels = {
        logging.getLogger("kafkalog_broker"): logging.CRITICAL,
        logging.getLogger("kafkalog_spark"): logging.ERROR,
    }
    before = {log: log.level for log in levels}
    tick_s = server_module._TICK_S
    for log, level in levels.items():
        log.setLevel(level)
    server_module._TICK_S = 3600.0
    try:
        yield
    finally:
        for log, level in before.items():
            log.setLevel(level)
        server_module._TICK_S = tick_s
