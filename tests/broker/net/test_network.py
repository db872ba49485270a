"""Real sockets on the loopback interface, with uvloop and with asyncio's own loop."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkalog_broker.api.api_versions import api_versions
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net import response_writer
from kafkalog_broker.net.dispatch import Dispatch, dispatcher
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.net.network import Network
from kafkalog_broker.net.response_stream import BUFFER_BYTES
from kafkalog_broker.net.response_writer import WRITE_BUFFER_BYTES
from kafkalog_broker.protocol import api_registry
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from kafkalog_spark.errors import KafkalogError
from tests.broker.net.helpers import fakes
from tests.broker.net.helpers.fakes import Handler, framed, listen

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
MB = 1 << 20


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    def run_in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(test())

    return run_in_loop


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@asynccontextmanager
async def listening(dispatch: Dispatch, **properties: object) -> AsyncIterator[tuple[Network, Listener]]:
    """A network that is always stopped: uvloop would wait forever for connections that a failed test leaves open."""
    network = fakes.network(dispatch, **properties)
    try:
        yield network, await listen(network, "PLAINTEXT", "127.0.0.1", 0)
    finally:
        await network.stop()


async def connect(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port, limit=MB)


async def response(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def ask(listener: Listener, body: bytes) -> bytes:
    reader, writer = await connect(listener)
    writer.write(framed(body))
    answer = await response(reader)
    writer.close()
    return answer


def test_large_and_small_requests_are_answered(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):
            numbers = random.Random(4)
            bodies = [numbers.randbytes(size) for size in (2, 1, 5 * MB, 100, 300_000, 64 << 10, 3, MB)]
            reader, writer = await connect(listener)
            writer.write(b"".join(map(framed, bodies)))
            assert [await response(reader) for _ in bodies] == bodies
            writer.close()

    run(test)


def test_connections_with_a_shared_buffer_keep_their_data_apart(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):

            async def client(number: int) -> None:
                reader, writer = await connect(listener)
                for turn in range(20):
                    body = bytes([number]) * (turn * 5000 + 1)
                    wire = framed(body)
                    for position in range(0, len(wire), 7001):
                        writer.write(wire[position : position + 7001])
                        await writer.drain()
                        await asyncio.sleep(0)
                    assert await response(reader) == body
                writer.close()

            await asyncio.gather(*map(client, range(8)))

    run(test)


def test_client_that_does_not_read_is_no_longer_served_but_others_are(run: Run) -> None:
    async def test() -> None:
        handler = Handler()
        handler.answer = lambda frame: [framed(bytes(8 * MB))] if frame == b"fetch" else [framed(frame)]
        async with listening(handler) as (network, listener):
            deaf = socket.create_connection(("127.0.0.1", listener.port))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(framed(b"fetch") * 50)
            for turn in range(20):
                assert await ask(listener, b"%d" % turn) == b"%d" % turn
            assert handler.seen.count(b"fetch") == 1
            while len(network.quotas.open) > 1:  # the others are closed
                await asyncio.sleep(0)
            (connection,) = network.quotas.open
            assert 0 < connection.unread_bytes <= 8 * MB + 4
            deaf.close()

    run(test)


def test_unread_response_from_a_file_uses_one_buffer(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        data = random.Random(5).randbytes(32 * MB)
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(data)
        records = FileSlice(FileHandle(str(path)), 7, len(data) - 7)
        handler = Handler()
        handler.answer = lambda frame: [struct.pack(">i", len(records) + 2), b"a", records, b"z"]
        async with listening(handler) as (network, listener):
            deaf = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
            for one in deaf:
                one.sendall(framed(b"fetch"))
            # others are served meanwhile, and what waits for the deaf ones is not written over
            for _ in range(2):
                assert await ask(listener, b"fetch") == b"a" + data[7:] + b"z"
            waiting = [connection.unread_bytes for connection in network.quotas.open]
            assert len(waiting) >= 3
            assert max(waiting) <= WRITE_BUFFER_BYTES + BUFFER_BYTES
            path.unlink()
            for one in deaf:
                reader, writer = await asyncio.open_connection(sock=one, limit=MB)
                assert await response(reader) == b"a" + data[7:] + b"z"
                writer.close()

    run(test)


def test_response_from_a_file_yields_to_other_connections(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without yielding, a peer that reads as fast as the broker sends would hold the loop for the whole response."""
    turns = []

    class Short(TimeSlice):
        is_over = property(lambda self: True)  # type: ignore[assignment]

        async def wait_turn(self) -> None:
            turns.append(1)
            await super().wait_turn()

    async def test() -> None:
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(bytes(MB))
        records = FileSlice(FileHandle(str(path)), 0, MB)
        handler = Handler()
        handler.answer = lambda frame: [struct.pack(">i", MB + 1), records, b"z"]
        async with listening(handler) as (_network, listener):
            assert await ask(listener, b"fetch") == bytes(MB) + b"z"

    monkeypatch.setattr(response_writer, "TimeSlice", Short)
    run(test)
    assert len(turns) >= MB // BUFFER_BYTES


def test_response_from_a_truncated_file_closes_the_connection_with_one_log_line(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(bytes(MB))
        records = FileSlice(FileHandle(str(path)), 0, 2 * MB)
        handler = Handler()
        handler.answer = lambda frame: [struct.pack(">i", len(records) + 2), b"a", records, b"z"]
        async with listening(handler) as (_network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"fetch"))
            assert await reader.read() == struct.pack(">i", 2 * MB + 2) + b"a" + bytes(MB)[: BUFFER_BYTES * 4 - 5]
            writer.close()

    run(test)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"the file ends at byte {MB} of [0, {2 * MB}) of a segment" in caplog.text


def test_half_closed_client_gets_its_responses(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"one") + framed(b"two"))
            writer.write_eof()
            assert await reader.read() == framed(b"one") + framed(b"two")
            writer.close()

    run(test)


def test_reset_connection_is_not_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler(hold=True)
        async with listening(handler) as (network, listener):
            client = socket.create_connection(("127.0.0.1", listener.port))
            client.sendall(framed(b"x"))
            while not handler.waiting:
                await asyncio.sleep(0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            while len(network.quotas.open):
                await asyncio.sleep(0)
            handler.release()
            assert await ask_without_hold(handler, listener) == b"y"

    async def ask_without_hold(handler: Handler, listener: Listener) -> bytes:
        handler.holds = lambda frame: False
        return await ask(listener, b"y")

    run(test)
    assert not caplog.records


def test_connection_above_the_limit_is_closed_until_another_one_ends(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler(), max_connections=3) as (network, listener):
            held = [await connect(listener) for _ in range(3)]
            for _, writer in held:
                writer.write(framed(b"x"))
            for reader, _ in held:
                assert await response(reader) == b"x"
            for _ in range(100):
                reader, writer = await connect(listener)
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await response(reader)
                writer.close()
            held[0][1].close()
            while len(network.quotas.open) == 3:
                await asyncio.sleep(0)
            assert await ask(listener, b"room") == b"room"
            for _, writer in held:
                writer.close()

    run(test)


def test_requests_carry_the_name_of_their_listener(run: Run) -> None:
    async def test() -> None:
        async def which(frame: Any, connection: ConnectionInfo) -> list[Any]:
            return [framed(f"{connection.listener} {connection.local_port}".encode())]

        network = fakes.network(which)
        first = await listen(network, "INTERNAL", "127.0.0.1", 0)
        second = await listen(network, "EXTERNAL", "", 0)
        assert await ask(first, b"?") == f"INTERNAL {first.port}".encode()
        assert await ask(second, b"?") == f"EXTERNAL {second.port}".encode()
        assert network.listeners == [first, second]
        await network.stop()

    run(test)


def test_port_in_use_raises_an_error_that_names_the_listener(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):
            other = fakes.network(Handler())
            with pytest.raises(
                KafkalogError, match=rf"listener OTHER cannot be bound to 127.0.0.1:{listener.port}: .*use"
            ):
                await listen(other, "OTHER", "127.0.0.1", listener.port)

    run(test)


def test_stopped_network_accepts_no_connection(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):
            reader, writer = await connect(listener)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionError):
            await connect(listener)

    run(test)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(request: Request, broker: Any) -> Any:
        return Echo(int.from_bytes(request.entity.member_id.encode()))

    monkeypatch.setattr(api_registry, "_APIS", {})
    monkeypatch.setattr(api_registry, "_ERROR_HANDLERS", {})
    api(18, 0, 4)(api_versions)
    api(12, 0, 4)(echo)


class Echo(NamedTuple):
    """In front of the number, the correlation id."""

    error_code: int


HEARTBEAT = struct.pack(">hhih", 12, 0, 7, -1) + b"\0\1g" + struct.pack(">ih", 1, 2) + b"me"


@pytest.mark.usefixtures("served")
def test_clients_that_send_invalid_bytes_are_closed_and_others_served(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = random.Random(9)
    rubbish = [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client: a request of 369295872 bytes
        struct.pack(">i", -1),
        framed(b""),
        framed(struct.pack(">hhih", 12, 99, 1, -1)),
        framed(struct.pack(">hhih", -7, 0, 1, -1)),
        framed(HEARTBEAT[:-1]),
        *(framed(numbers.randbytes(numbers.randrange(100))) for _ in range(50)),
    ]

    async def test() -> None:
        async with listening(dispatcher(None)) as (_network, listener):
            reader, writer = await connect(listener)
            for sent in rubbish:
                bad_reader, bad_writer = await connect(listener)
                bad_writer.write(sent)
                try:
                    assert await bad_reader.read() == b""
                except ConnectionError:
                    pass
                bad_writer.close()
                writer.write(framed(HEARTBEAT))
                assert await response(reader) == b"\0\0\0\7me"
            writer.close()

    run(test)
    assert len(caplog.messages) == len(rubbish)
    assert all(message.count("\n") == 0 for message in caplog.messages)


@pytest.mark.usefixtures("served")
def test_api_versions_of_an_unknown_version_keeps_the_connection_open(run: Run) -> None:
    async def test() -> None:
        async with listening(dispatcher(SimpleNamespace(telemetry=SimpleNamespace(receiver=None)))) as (
            _network,
            listener,
        ):
            reader, writer = await connect(listener)
            writer.write(framed(struct.pack(">hhih", 18, 99, 1, -1)) + framed(struct.pack(">hhih", 18, 0, 2, -1)))
            assert await response(reader) == struct.pack(">ihihhh", 1, 35, 1, 18, 0, 4)
            assert (await response(reader))[:6] == struct.pack(">ih", 2, 0)
            writer.close()

    run(test)
