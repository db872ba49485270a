"""Connections with TLS over real sockets, with uvloop and with asyncio's own loop."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.net import tls_transport
from kafkalog_broker.net.dispatch import Dispatch
from kafkalog_broker.net.event_loop import new_event_loop
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.net.network import Network
from kafkalog_broker.net.response_stream import BUFFER_BYTES
from kafkalog_broker.net.tls_transport import PIECE_BYTES
from kafkalog_broker.net.tls_turns import TlsTurns
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.security.listener_tls import ListenerTls
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from kafkalog_broker.testing_support.certificate_authority import IssuedCertificate
from tests.broker.net.helpers import fakes
from tests.broker.net.helpers.fakes import Handler, framed, listen, only_connection
from tests.broker.security.stores import authority, inline, settings

MB = 1 << 20
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
Run = Callable[[Callable[[], Coroutine[None, None, None]]], None]


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    def run_in_loop(test: Callable[[], Coroutine[None, None, None]]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(test(), 30))

    return run_in_loop


@asynccontextmanager
async def listening(
    dispatch: Dispatch, max_connections: int = 100, **properties: str
) -> AsyncIterator[tuple[Network, Listener]]:
    tls = ListenerTls(settings({**inline(), **{name.replace("_", "."): text for name, text in properties.items()}}))
    network = fakes.network(dispatch, max_connections=max_connections)
    try:
        yield network, await listen(network, "SSL", "127.0.0.1", 0, lambda: tls)
    finally:
        await network.stop(0.5)


def client(issued: IssuedCertificate | None = None, tmp_path: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate)
    if issued is not None and tmp_path is not None:
        path = tmp_path / "client.pem"
        path.write_text(issued.key + issued.chain)
        context.load_cert_chain(path)
    return context


async def connect(
    listener: Listener, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        "127.0.0.1", listener.port, limit=MB, ssl=context or client(), server_hostname="localhost"
    )


async def response(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except (OSError, ssl.SSLError):
        pass


def test_large_and_small_requests_are_answered(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler()) as (_network, listener):
            numbers = random.Random(4)
            bodies = [numbers.randbytes(size) for size in (2, 1, 5 * MB, 100, 300_000, 64 << 10, 16384, 16385, 3, MB)]
            reader, writer = await connect(listener)
            sending = asyncio.ensure_future(_send(writer, bodies))
            assert [await response(reader) for _ in bodies] == bodies
            await sending
            await closed(writer)

    async def _send(writer: asyncio.StreamWriter, bodies: list[bytes]) -> None:
        for body in bodies:
            writer.write(framed(body))
            await writer.drain()

    run(test)


def test_response_from_a_file_reaches_a_slow_reader_completely(run: Run, tmp_path: Path) -> None:
    """More than the sockets hold."""
    data = random.Random(5).randbytes(50 * BUFFER_BYTES + 12_345)
    (tmp_path / "segment").write_bytes(data)

    async def test() -> None:
        handler = Handler()
        records = FileSlice(FileHandle(str(tmp_path / "segment")), 0, len(data))
        handler.answer = lambda frame: [len(data).to_bytes(4, "big"), b"", records]
        async with listening(handler) as (network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"12"))
            await asyncio.sleep(0.05)
            connection = only_connection(network)
            assert connection.unread_bytes <= BUFFER_BYTES + (64 << 10)
            assert await response(reader) == data
            await closed(writer)

    run(test)


def test_large_response_is_encrypted_as_it_is_read_and_counted_until_then(run: Run) -> None:
    data = random.Random(6).randbytes(20 * MB)

    async def test() -> None:
        handler = Handler()
        handler.answer = lambda frame: [framed(data)]
        async with listening(handler) as (network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"12"))
            await writer.drain()
            while not (held := network.shared.unread._held):
                await asyncio.sleep(0.001)
            connection = only_connection(network)
            counted = held[connection]
            transport = cast(tls_transport.TlsTransport, connection._transport)
            assert transport.get_write_buffer_size() <= BUFFER_BYTES + (64 << 10)
            assert connection.unread_bytes >= counted > len(data)
            assert await response(reader) == data
            assert not connection._writer._streamed_bytes
            await closed(writer)

    run(test)


def test_principal_is_the_certificate_subject_or_anonymous(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def dispatch(frame: bytes | memoryview, connection: ConnectionInfo) -> list[bytes]:
            seen.append(connection.principal)
            return [framed(bytes(frame))]

        async with listening(dispatch, ssl_client_auth="requested") as (_network, listener):
            for context in (client(authority().issue("alice"), tmp_path), client()):
                reader, writer = await connect(listener, context)
                writer.write(framed(b"12"))
                assert await response(reader) == b"12"
                await closed(writer)
        assert seen == ["User:CN=alice", "User:ANONYMOUS"]

    run(test)


@pytest.mark.parametrize("what", ["none", "expired", "unknown authority", "plaintext", "garbage"])
def test_failed_handshake_is_logged_in_one_line(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    from kafkalog_broker.testing_support.certificate_authority import Authority

    said = {
        "none": "peer did not return a certificate",
        "expired": "certificate has expired",
        "unknown authority": "self-signed certificate in certificate chain",
        "plaintext": "the client may not be using TLS",
        "garbage": "its TLS handshake failed",
    }[what]

    async def test() -> None:
        handler = Handler()
        async with listening(handler, ssl_client_auth="required") as (network, listener):
            if what in ("plaintext", "garbage"):
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                head = framed(b"\0\x12\0\0\0\0\0\1\xff\xff") if what == "plaintext" else b"\x16\x03\x01\x02\x00\x01"
                writer.write(head + random.Random(6).randbytes(600))
            else:
                issued = {
                    "none": None,
                    "expired": authority().issue("alice", expires_at=datetime.now(UTC) - timedelta(minutes=1)),
                    "unknown authority": Authority("others").issue("alice"),
                }[what]
                reader, writer = await connect(listener, client(issued, tmp_path))
            try:
                while await reader.read(1000):  # alerts, in TLS 1.3 after the client's side of the handshake
                    pass
            except (ssl.SSLError, ConnectionError):
                pass
            await closed(writer)
            assert handler.seen == []
            assert not network.quotas.open

    with caplog.at_level(logging.WARNING):
        run(test)
    lines = [record.message for record in caplog.records if "closed: " in record.message]
    assert len(lines) == 1
    assert said in lines[0]


def test_unfinished_handshake_is_closed_after_a_timeout(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_S", 0.05)

    async def test() -> None:
        async with listening(Handler()) as (network, listener):
            silent = await asyncio.open_connection("127.0.0.1", listener.port)
            half = await asyncio.open_connection("127.0.0.1", listener.port)
            half[1].write(b"\x16\x03\x01\x02\x00")
            for reader, writer in (silent, half):
                assert await reader.read() == b""
                await closed(writer)
            assert not network.quotas.open

    with caplog.at_level(logging.WARNING):
        run(test)
    assert sum("handshake was not done" in record.message for record in caplog.records) == 2


def test_unfinished_handshakes_count_as_connections(run: Run) -> None:
    async def test() -> None:
        async with listening(Handler(), max_connections=2) as (network, listener):
            open_now = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
            assert await open_now[2][0].read() == b""
            assert len(network.quotas.open) == 2
            for _, writer in open_now:
                await closed(writer)

    run(test)


def test_requests_sent_before_close_notify_are_answered(run: Run) -> None:
    """The client sends close_notify with its last requests and still reads."""

    async def test() -> None:
        handler = Handler()
        async with listening(handler) as (_network, listener):

            def talk() -> bytes:
                with socket.create_connection(("127.0.0.1", listener.port)) as raw:
                    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                    tls = client().wrap_bio(incoming, outgoing, server_hostname="localhost")
                    while True:
                        try:
                            tls.do_handshake()
                            break
                        except ssl.SSLWantReadError:
                            raw.sendall(outgoing.read())
                            incoming.write(raw.recv(65536))
                    tls.write(framed(b"12") + framed(b"345"))
                    try:
                        tls.unwrap()
                    except ssl.SSLWantReadError:
                        pass
                    raw.sendall(outgoing.read())
                    raw.shutdown(socket.SHUT_WR)
                    data = b""
                    while more := raw.recv(65536):
                        data += more
                    return data

            answered = await asyncio.to_thread(talk)
            assert handler.seen == [b"12", b"345"]
            assert len(answered) > 2 * 20  # records of the two answers and of the goodbye

    run(test)


def test_connection_reset_without_close_notify_ends(run: Run) -> None:
    async def test() -> None:
        handler = Handler(hold=True)
        async with listening(handler) as (network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"12"))
            while not handler.waiting:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            while not next(iter(network.quotas.open)).info.is_closed:
                await asyncio.sleep(0.001)
            handler.release()
            while network.quotas.open:
                await asyncio.sleep(0.001)
            assert reader is not None

    run(test)


def test_new_connections_get_the_new_certificate(run: Run) -> None:
    async def test() -> None:
        renewed = authority().issue("localhost", ("localhost",))
        now = [ListenerTls(settings(inline()))]
        network = fakes.network(Handler())
        try:
            listener = await listen(network, "SSL", "127.0.0.1", 0, lambda: now[0])
            seen = []
            for issued in (None, renewed):
                if issued is not None:
                    now[0] = ListenerTls(settings(inline(issued)))
                _reader, writer = await connect(listener)
                seen.append(writer.get_extra_info("ssl_object").getpeercert(True))
                await closed(writer)
            assert seen[0] != seen[1]
            assert seen[1] == ssl.PEM_cert_to_DER_cert(
                renewed.chain.partition("-----END")[0] + "-----END CERTIFICATE-----"
            )
        finally:
            await network.stop(0.5)

    run(test)


def test_damaged_handshakes_do_not_affect_the_listener(run: Run) -> None:
    """The messages are ClientHellos with bytes changed, cut or duplicated."""

    async def test() -> None:
        numbers = random.Random(7)
        outgoing = ssl.MemoryBIO()
        tls = client().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        async with listening(Handler()) as (network, listener):
            for _ in range(150):
                data = bytearray(hello)
                for _ in range(numbers.choice((1, 1, 2, 10))):
                    data[numbers.randrange(len(data))] = numbers.randrange(256)
                cut = numbers.choice((len(data), numbers.randrange(len(data))))
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(bytes(data[:cut]) * numbers.choice((1, 1, 2)))
                if writer.can_write_eof():
                    writer.write_eof()
                try:
                    await reader.read()
                except ConnectionError:
                    pass  # it is closed with bytes that nobody has read
                await closed(writer)
            reader, writer = await connect(listener)
            writer.write(framed(b"12"))
            assert await response(reader) == b"12"
            await closed(writer)
            while network.quotas.open:
                await asyncio.sleep(0.001)

    run(test)


def test_peer_that_requests_key_updates_without_reading_is_closed(run: Run) -> None:
    """TLS responds to key update requests by itself.

    Python's client cannot request key updates, so other bytes are written to the broker's TLS object.
    """

    async def test() -> None:
        async with listening(Handler()) as (network, listener):
            reader, writer = await connect(listener)
            writer.write(framed(b"12"))
            assert await response(reader) == b"12"
            connection = only_connection(network)
            transport = cast(tls_transport.TlsTransport, connection._transport)
            assert transport._tls is not None
            for _ in range(1 + tls_transport.MAX_UNSENT_KEY_UPDATE_BYTES // PIECE_BYTES):
                transport._tls.write(bytes(PIECE_BYTES))
            writer.write(framed(b"34"))
            while network.quotas.open:
                await asyncio.sleep(0.001)
            await closed(writer)

    run(test)


def test_handshakes_take_turns() -> None:
    """A round takes at least one step and continues until its time is used up; no handshake is skipped."""

    async def test() -> None:
        now, taken = [0.0], list[int]()
        turns = TlsTurns(asyncio.get_running_loop(), LoopWatch(), lambda: now[0])

        def step(number: int) -> None:
            taken.append(number)
            now[0] += 0.0015

        for number in range(5):
            turns.schedule(partial(step, number))
        rounds = []
        for _ in range(4):
            await asyncio.sleep(0)
            rounds.append(list(taken))
        assert rounds == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]

    asyncio.run(test())


def test_long_handshakes_are_recorded_and_stop_after_their_share_of_a_round() -> None:
    times = iter([0.0, 0.0015, 0.003, 0.003, 0.0035])

    async def go() -> tuple[list[int], dict[str, float]]:
        watch, steps = LoopWatch(), list[int]()
        turns = TlsTurns(asyncio.get_running_loop(), watch, lambda: next(times))
        for number in range(3):
            turns.schedule(partial(steps.append, number))
        await asyncio.sleep(0)
        first = list(steps)
        await asyncio.sleep(0)
        assert steps == [0, 1, 2]
        return first, dict(watch.longest)

    assert asyncio.run(go()) == ([0, 1], {"TLS handshakes": 0.003})
