"""Processing of TLS records, with an OpenSSL client in memory instead of a socket."""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Any, cast

import pytest

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.loop_watch import LoopWatch
from kafkalog_broker.net.tls_transport import PIECE_BYTES, RECORDS_AT_ONCE, TlsTransport
from kafkalog_broker.net.tls_turns import TlsTurns
from kafkalog_broker.security.listener_tls import ListenerTls
from tests.broker.net.helpers.fakes import FakeTransport, in_a_loop, settle
from tests.broker.security.stores import authority, inline, settings


class Socket(FakeTransport):
    """A socket on which pause and resume may be repeated."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Taking:
    """The connection: it keeps the received data, with a buffer of limited size."""

    def __init__(self) -> None:
        self.room, self.took, self.ended = 1 << 20, list[bytes](), False
        self._buffer = memoryview(b"")

    def connection_made(self, transport: Any) -> None:
        pass

    def handshake_done(self, principal: str) -> None:
        pass

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = memoryview(bytearray(self.room))
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.took.append(bytes(self._buffer[:count]))

    def eof_received(self) -> bool:
        self.ended = True
        return True

    def connection_lost(self, error: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    @property
    def data(self) -> bytes:
        return b"".join(self.took)


class Client:
    """An in-memory TLS client; its outgoing bytes stay in `sent`."""

    def __init__(self) -> None:
        self._in, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cadata=authority().certificate)
        self.tls = context.wrap_bio(self._in, self.sent, server_hostname="localhost")
        self.taking = Taking()
        loop = asyncio.get_running_loop()
        tls = ListenerTls(settings(inline()))
        self.server = TlsTransport(loop, cast(Connection, self.taking), TlsTurns(loop, LoopWatch()), lambda: tls)
        self.socket = Socket(cast(Connection, self.server), "10.0.0.1")
        self.server.connection_made(self.socket)

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.send()
                await settle()
                self.receive()
        self.send()
        await settle()

    def receive(self) -> None:
        self._in.write(self.socket.sent)
        self.socket.sent = b""

    def send(self, data: bytes | None = None) -> None:
        """These bytes, or all that was written, into the broker's buffer; it may stop reading in between."""
        rest = self.sent.read() if data is None else data
        while rest:
            assert self.socket.reading
            buffer = self.server.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count], rest = rest[:count], rest[count:]
            self.server.buffer_updated(count)


async def shaken_hands() -> Client:
    client = Client()
    await client.shake_hands()
    return client


@in_a_loop
async def test_small_tls_records_are_delivered_together() -> None:
    client = await shaken_hands()
    messages = [random.Random(n).randbytes(1 + n * 7) for n in range(100)]
    for message in messages:
        client.tls.write(message)
    client.send()
    assert client.taking.took == [b"".join(messages)]
    assert not client.taking.ended


@in_a_loop
async def test_tls_record_received_in_pieces_is_decrypted_once_complete() -> None:
    client = await shaken_hands()
    client.tls.write(b"a" * 10_000)
    sent = client.sent.read()
    for piece in (sent[:1], sent[1:5], sent[5:-1]):
        client.send(piece)
        assert not client.taking.took
    client.send(sent[-1:])
    assert client.taking.took == [b"a" * 10_000]


@in_a_loop
async def test_data_beyond_the_buffer_is_delivered_later() -> None:
    client = await shaken_hands()
    client.taking.room = 7_000
    data = random.Random(2).randbytes(40_000)
    client.tls.write(data)
    client.tls.write(b"end")
    client.send()
    assert client.taking.data == data + b"end"


@in_a_loop
async def test_paused_connection_decrypts_nothing() -> None:
    client = await shaken_hands()
    client.server.pause_reading()
    client.tls.write(b"a")
    client.socket.reading = True  # these bytes were on their way
    client.send()
    assert not client.taking.took
    client.server.resume_reading()
    await settle()
    assert client.taking.took == [b"a"]
    assert client.socket.reading


@in_a_loop
async def test_one_step_decrypts_a_bounded_number_of_tls_records() -> None:
    """Each holds one byte, so that a buffer would take thousands of them. Nothing is read before they are taken."""
    client = await shaken_hands()
    count = 2 * RECORDS_AT_ONCE + 10
    for _ in range(count):
        client.tls.write(b"1")
    client.send()
    assert not client.socket.reading
    await settle()
    assert list(map(len, client.taking.took)) == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 10]
    assert client.socket.reading


@pytest.mark.parametrize("goodbye", [True, False])
@in_a_loop
async def test_end_of_stream_follows_the_sent_bytes(goodbye: bool) -> None:
    client = await shaken_hands()
    client.tls.write(b"last words")
    if goodbye:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
    client.send()
    client.server.eof_received()
    assert client.taking.data == b"last words"
    assert client.taking.ended
    if goodbye:  # OpenSSL takes an end without one for an attack, and writes nothing more
        client.server.write(b"an answer")
        client.receive()
        assert client.tls.read(100) == b"an answer"


@in_a_loop
async def test_damaged_tls_record_closes_with_an_alert() -> None:
    client = await shaken_hands()
    client.tls.write(b"a" * 100)
    sent = bytearray(client.sent.read())
    sent[50] ^= 1
    client.send(bytes(sent))
    assert client.socket.closing
    client.receive()
    with pytest.raises(ssl.SSLError, match=r"BAD_RECORD_MAC|bad record mac"):
        client.tls.read(100)


@in_a_loop
async def test_written_data_is_sent_before_close_notify() -> None:
    client = await shaken_hands()
    data = random.Random(3).randbytes(3 * PIECE_BYTES + 1)
    client.server.write(data)
    client.server.close()
    client.receive()
    found = b""
    while len(found) < len(data):
        found += client.tls.read(1 << 20)
    assert found == data
    assert client.tls.read(10) == b""


@in_a_loop
async def test_pause_writing_callback_sees_the_full_write_buffer_size() -> None:
    """As `UnreadResponses`, which closes peers by it."""
    client, size, found = await shaken_hands(), 7 * PIECE_BYTES, list[int]()
    client.socket.peer_reads = False
    client.taking.pause_writing = lambda: found.append(client.server.get_write_buffer_size())  # type: ignore[method-assign]
    client.server.write(bytes(size))
    assert len(found) == 1
    assert found[0] > size
