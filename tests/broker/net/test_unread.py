"""The bound on all unread responses: only connections that read nothing are closed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkalog_broker.net.connection import Connection
from kafkalog_broker.net.unread_responses import MAX_UNREAD_BYTES
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.byte_budget import ByteBudget
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, run, settle


def test_connections_that_read_nothing_are_closed_until_the_limit_holds(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        sizes = {b"small": MAX_UNREAD_BYTES // 4, b"large": MAX_UNREAD_BYTES // 2}
        handler.answer = lambda frame: [framed(bytes(sizes[frame]))]
        net = network(handler)
        peers = {name: Peer(net) for name in ("small", "reading", "large", "another")}
        for name, peer in peers.items():
            peer.transport.peer_reads = False
            peer.send(framed(b"small" if name == "small" else b"large"))
            await settle()
        reading = peers["reading"].transport
        reading.unsent = reading.unsent[1:]  # its peer has read a byte
        net.shared.unread.close_idle_readers()
        await settle()
        assert [name for name, peer in peers.items() if peer.transport.lost] == ["large", "another"]
        net.shared.unread.close_idle_readers()
        await settle()
        assert not reading.lost
        net.shared.unread.stop()

    run(test)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "its peer has not read a byte for a second, 16777220 bytes wait for it" in caplog.text


@in_a_loop
async def test_bytes_read_or_lost_are_not_counted() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(bytes(MAX_UNREAD_BYTES // 2))]
    net = network(handler)

    async def unread() -> Peer:
        peer = Peer(net)
        peer.transport.peer_reads = False
        peer.send(framed(b"x"))
        await settle()
        return peer

    for end in (lambda peer: peer.transport.read_all(), lambda peer: peer.transport.abort()):
        for _ in range(3):
            end(await unread())
            await settle()
    last = await unread()
    net.shared.unread.close_idle_readers()
    assert not last.transport.closing
    assert isinstance(last.connection, Connection)
    net.shared.unread.stop()


class Held(Handler):
    """A handler that responds with 1 MB and a lease of as many bytes."""

    def __init__(self, budget: ByteBudget) -> None:
        super().__init__()
        self.budget = budget

    async def __call__(self, frame: bytes | memoryview, connection: ConnectionInfo) -> list[Any] | None:
        connection.hold(await self.budget.acquire(1 << 20))
        return [framed(bytes(1 << 20))]


@in_a_loop
async def test_lease_of_a_response_is_released_when_it_is_sent_or_the_peer_is_gone() -> None:
    budget = ByteBudget(8 << 20)
    net = network(Held(budget))
    reads, waits, goes = (Peer(net) for _ in range(3))
    waits.transport.peer_reads = goes.transport.peer_reads = False
    for peer in (reads, waits, goes):
        peer.send(framed(b"x"))
        await settle()
    assert budget.used == 2 << 20
    waits.transport.read_all()
    goes.transport.abort()
    await settle()
    assert budget.used == 0
    net.shared.unread.stop()


@in_a_loop
async def test_peer_that_does_not_read_is_closed_when_others_wait_for_its_lease() -> None:
    budget = ByteBudget(2 << 20)
    net = network(Held(budget))
    silent, reading, third = (Peer(net) for _ in range(3))
    for peer in (silent, reading):
        peer.transport.peer_reads = False
        peer.send(framed(b"x"))
        await settle()
    net.shared.unread.close_idle_readers()
    await settle()
    assert not silent.transport.lost, "nobody waits"
    reading.transport.unsent = reading.transport.unsent[1:]
    third.send(framed(b"x"))
    await settle()
    assert third.responses == []
    net.shared.unread.close_idle_readers()
    await settle()
    assert [peer.transport.lost for peer in (silent, reading, third)] == [True, False, False]
    assert len(third.responses) == 1
    net.shared.unread.stop()
