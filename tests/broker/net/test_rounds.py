"""Short work in crowds: a few pieces in each round of the event loop, in the order in which they came."""

from __future__ import annotations

import asyncio
from functools import partial

from kafkalog_broker.net.large_requests import A_ROUND, Rounds
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, settle


@in_a_loop
async def test_a_crowd_takes_rounds_and_keeps_its_order() -> None:
    rounds, done = Rounds(asyncio.get_running_loop()), list[int]()
    for number in range(3 * A_ROUND + 1):
        rounds.call(partial(done.append, number))
    counts = [len(done)]
    while counts[-1] < 3 * A_ROUND + 1:
        await asyncio.sleep(0)
        counts.append(len(done))
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) == A_ROUND
    assert done == sorted(done)
    rounds.call(lambda: done.append(-1))
    assert done[-1] == -1  # a single one does not wait


@in_a_loop
async def test_what_work_adds_waits_its_turn() -> None:
    rounds, done = Rounds(asyncio.get_running_loop()), list[str]()
    for _ in range(A_ROUND):
        rounds.call(lambda: done.append("first"))
    rounds.call(lambda: rounds.call(lambda: done.append("added")))
    rounds.call(lambda: done.append("last"))
    await rounds.ended()
    assert sorted(done[A_ROUND:]) == ["added", "last"]


@in_a_loop
async def test_clients_that_leave_together_take_rounds() -> None:
    handler = Handler(hold=True)
    net = network(handler)
    told: list[int] = []
    for end in (lambda peer: peer.connection.eof_received(), lambda peer: peer.transport.abort()):
        peers = [Peer(net) for _ in range(5 * A_ROUND)]
        for peer in peers:
            peer.send(framed(b"long poll"))
            peer.connection.info.on_close(lambda: told.append(1))
        await settle()
        told.clear()
        for peer in peers:
            end(peer)
        most = before = len(told)
        while len(told) < len(peers):
            await asyncio.sleep(0)
            most, before = max(most, len(told) - before), len(told)
        assert most <= A_ROUND
    handler.holds = lambda frame: False
    while handler.waiting:
        handler.release()
    await settle()
    while net.connection_count:
        await asyncio.sleep(0)


@in_a_loop
async def test_a_network_with_many_connections_stops() -> None:
    net = network(Handler())
    peers = [Peer(net) for _ in range(5 * A_ROUND)]
    deaf = peers[: 3 * A_ROUND]
    for peer in deaf:
        peer.transport.peer_reads = False
        peer.send(framed(b"x"))
    await settle()
    await net.stop()
    assert net.connection_count == 0
    assert all(peer.transport.lost for peer in peers)
