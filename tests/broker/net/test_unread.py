"""Responses that peers do not read: bounded in all, and only those that read nothing are closed."""

from __future__ import annotations

import logging

import pytest

from kafkalog_broker.net.connection import UNREAD_BYTES, Connection
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, run, settle


def test_those_that_read_nothing_are_closed_until_the_rest_fits(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        sizes = {b"small": UNREAD_BYTES // 4, b"large": UNREAD_BYTES // 2}
        handler.answer = lambda frame: [framed(bytes(sizes[frame]))]
        net = network(handler)
        peers = {name: Peer(net) for name in ("small", "reading", "large", "another")}
        for name, peer in peers.items():
            peer.transport.peer_reads = False
            peer.send(framed(b"small" if name == "small" else b"large"))
            await settle()
        reading = peers["reading"].transport
        reading.unsent = reading.unsent[1:]  # its peer has read a byte
        net.shared.unread.close_those_that_do_not_read()
        await settle()
        assert [name for name, peer in peers.items() if peer.transport.lost] == ["large", "another"]
        net.shared.unread.close_those_that_do_not_read()
        await settle()
        assert not reading.lost
        net.shared.unread.stop()

    run(test)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "its peer has not read a byte for a second, 16777220 bytes wait for it" in caplog.text


@in_a_loop
async def test_what_is_read_or_lost_is_not_held() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(bytes(UNREAD_BYTES // 2))]
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
    net.shared.unread.close_those_that_do_not_read()
    assert not last.transport.closing
    assert isinstance(last.connection, Connection)
    net.shared.unread.stop()
