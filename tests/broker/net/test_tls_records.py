"""TLS on bytes alone, against a client of OpenSSL's that has no socket either."""

from __future__ import annotations

import random
import ssl

import pytest

from kafkalog_broker.net.tls_transport import PIECE_BYTES, RECORDS_AT_ONCE, TlsRecords
from kafkalog_broker.security.tls_context import tls_context
from tests.broker.security.stores import authority, inline, settings


class Client:
    """What came of it is in `sent`, and not taken out by itself."""

    def __init__(self) -> None:
        self._in, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cadata=authority().certificate)
        self.tls = context.wrap_bio(self._in, self.sent, server_hostname="localhost")

    def receive(self, data: bytes) -> None:
        self._in.write(data)


def shaken_hands() -> tuple[TlsRecords, Client]:
    server, client = TlsRecords(tls_context(settings(inline()))[0]), Client()
    done = 0
    while done < 2:
        done = 0
        for side in (client.tls.do_handshake, server.handshake):
            try:
                side()
                done += 1
            except ssl.SSLWantReadError:
                pass
            server.received(memoryview(client.sent.read()))
            client.receive(server.to_send())
    return server, client


def test_small_records_come_out_together() -> None:
    server, client = shaken_hands()
    messages = [random.Random(n).randbytes(1 + n * 7) for n in range(100)]
    for message in messages:
        client.tls.write(message)
    server.received(memoryview(client.sent.read()))
    into = memoryview(bytearray(1 << 20))
    assert server.more
    count = server.read(into)
    assert bytes(into[:count]) == b"".join(messages)
    assert not server.more
    assert not server.closed


def test_a_record_that_comes_in_pieces_comes_out_once_it_is_whole() -> None:
    server, client = shaken_hands()
    client.tls.write(b"a" * 10_000)
    sent, into = client.sent.read(), memoryview(bytearray(20_000))
    for piece in (sent[:1], sent[1:5], sent[5:-1]):
        server.received(memoryview(piece))
        assert server.read(into) == 0
        assert not server.more
    server.received(memoryview(sent[-1:]))
    assert server.read(into) == 10_000


def test_what_has_no_room_waits() -> None:
    server, client = shaken_hands()
    data = random.Random(2).randbytes(40_000)
    client.tls.write(data)
    client.tls.write(b"end")
    server.received(memoryview(client.sent.read()))
    into, found = memoryview(bytearray(7_000)), b""
    while server.more:
        found += bytes(into[: server.read(into)])
    assert found == data + b"end"


def test_one_step_takes_a_bounded_number_of_records() -> None:
    """Each holds one byte, so that a buffer would take a quarter of a million of them."""
    server, client = shaken_hands()
    count = 2 * RECORDS_AT_ONCE + 10
    for _ in range(count):
        client.tls.write(b"1")
    server.received(memoryview(client.sent.read()))
    into = memoryview(bytearray(1 << 20))
    steps = []
    while server.more:
        steps.append(server.read(into))
    assert sum(steps) == count
    assert max(steps) <= RECORDS_AT_ONCE


@pytest.mark.parametrize("goodbye", [True, False])
def test_the_end_is_seen_after_what_was_sent(goodbye: bool) -> None:
    server, client = shaken_hands()
    client.tls.write(b"last words")
    if goodbye:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
    server.received(memoryview(client.sent.read()))
    server.ended()
    into = memoryview(bytearray(100))
    assert server.read(into) == 10
    assert server.closed


def test_damage_is_an_error() -> None:
    server, client = shaken_hands()
    client.tls.write(b"a" * 100)
    sent = bytearray(client.sent.read())
    sent[50] ^= 1
    server.received(memoryview(sent))
    with pytest.raises(ssl.SSLError):
        server.read(memoryview(bytearray(1000)))
    assert server.unsent_bytes  # the alert that says so


def test_what_is_written_is_read_by_the_peer() -> None:
    server, client = shaken_hands()
    data = random.Random(3).randbytes(PIECE_BYTES)
    server.write(memoryview(data))
    server.goodbye()
    assert server.unsent_bytes > len(data)
    client.receive(server.to_send())
    assert server.unsent_bytes == 0
    found = b""
    while len(found) < len(data):
        found += client.tls.read(1 << 20)
    assert found == data
    assert client.tls.read(10) == b""


def test_what_is_kept_is_read_when_the_buffer_it_came_in_has_other_bytes() -> None:
    server, client = shaken_hands()
    data = random.Random(4).randbytes(3 * PIECE_BYTES)
    client.tls.write(data)
    buffer = bytearray(client.sent.read())
    server.received(memoryview(buffer))
    into = memoryview(bytearray(len(data)))
    count = server.read(into[:100])
    server.keep()
    buffer[:] = bytes(len(buffer))
    while server.more:
        count += server.read(into[count:])
    assert bytes(into[:count]) == data
