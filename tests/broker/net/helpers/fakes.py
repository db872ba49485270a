"""A transport without a socket, and a peer that drives a connection through it."""

from __future__ import annotations

import asyncio
import functools
import resource
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.net.listening_socket import bind_listener
from kafkalog_broker.net.network import Network
from kafkalog_broker.protocol.connection_info import ConnectionInfo


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def listen(network: Network, name: str, host: str, port: int, *security: Any, **named: Any) -> Listener:
    """Bind a listener, add it to the network with the arguments of Network.add_listener, and serve it."""
    bound = await bind_listener(Listener(name, host, port), network.quotas.config)
    network.add_listener(bound, *security, **named)
    await network.serve()
    return bound.listener


def only_connection(network: Network) -> Connection:
    """The one open connection of a network."""
    (connection,) = network.quotas.open
    assert isinstance(connection, Connection)
    return connection


async def settle() -> None:
    """Let everything run that can run without anything new happening outside."""
    for _ in range(20):
        await asyncio.sleep(0)


class FakeTransport(asyncio.Transport):
    """A transport that passes on bytes while the peer reads; otherwise it buffers them and pauses the writer."""

    def __init__(self, protocol: Connection, host: str) -> None:
        super().__init__({"peername": (host, 50_000), "sockname": ("127.0.0.1", 9092)})
        self.protocol = protocol
        self.sent = b""
        self.unsent = b""
        self.peer_reads = True
        self.reading = True
        self.closing = False
        self.lost = False
        self.writing_paused = False
        self.high = 64 << 10
        self.writes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        assert not self.lost, "written to a connection that is lost"
        self.writes += 1
        self.unsent += bytes(data)
        if self.peer_reads:
            self.read_all()
        elif len(self.unsent) > self.high and not self.writing_paused:
            self.writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def read_all(self) -> None:
        """Let the peer read all buffered bytes."""
        self.sent += self.unsent
        self.unsent = b""
        if self.writing_paused:
            self.writing_paused = False
            self.protocol.resume_writing()
        if self.closing:
            self._lose()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        if not self.unsent:
            self._lose()

    def abort(self) -> None:
        self.closing = True
        self.unsent = b""
        self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Peer:
    """A client: `send` bytes, look at `responses`."""

    def __init__(self, network: Network, host: str = "10.0.0.1") -> None:
        self.connection = network.new_connection("PLAINTEXT")
        self.transport = FakeTransport(self.connection, host)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Raises AssertionError when the broker has stopped reading: a real peer's bytes would wait in the socket."""
        while data:
            assert self.transport.reading
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.connection.buffer_updated(count)

    @property
    def responses(self) -> list[bytes]:
        found, data = [], self.transport.sent
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


class Handler:
    """A handler that returns its frame as the response. With `hold` each frame waits for `release`."""

    def __init__(self, hold: bool = False) -> None:
        self.holds: Callable[[bytes], bool] = lambda frame: hold
        self.seen: list[bytes] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.answer: Callable[[bytes], list[Any] | None] = lambda frame: [framed(frame)]

    async def __call__(self, frame: bytes | memoryview, connection: ConnectionInfo) -> list[Any] | None:
        self.seen.append(bytes(frame))
        if self.holds(bytes(frame)):
            gate = asyncio.get_running_loop().create_future()
            self.waiting.append(gate)
            await gate
        return self.answer(bytes(frame))

    def release(self) -> None:
        self.waiting.pop(0).set_result(None)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine function into a synchronous test."""

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        run(lambda: test(*args, **kwargs))

    return wrapper


@functools.cache
def config(**properties: object) -> BrokerConfig:
    """Kafka's defaults and these, by their names in snake_case."""
    return BrokerConfig.from_properties({"log.dirs": "unused"}, {k.replace("_", "."): v for k, v in properties.items()})


def network(dispatch: Dispatch, **properties: object) -> Network:
    return Network(dispatch, config(**properties), resource.RLIM_INFINITY)
