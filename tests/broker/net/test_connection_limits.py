"""Limits of a connection's memory, where it stops reading, and of the length of its turn."""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter
from typing import Any

import pytest

from kafkalog_broker.net.loop_watch import MIN_HOLD_S
from kafkalog_broker.net.request_reader import (
    FRAME_OVERHEAD,
    FRAMES_AT_ONCE,
    MAX_OTHER_BYTES,
    READ_AHEAD_BYTES,
    RECEIVE_BUFFER_BYTES,
)
from kafkalog_broker.net.response_writer import WRITE_BUFFER_BYTES
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.fair_scheduling import SLICE_S, TURN_S
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, run, settle


@in_a_loop
async def test_request_received_slowly_is_handled_when_complete() -> None:
    handler = Handler()
    peer = Peer(network(handler))
    for byte in framed(b"slowly"):
        assert not handler.seen
        peer.send(bytes([byte]))
        await settle()
    assert peer.responses == [b"slowly"]


@in_a_loop
async def test_reading_pauses_while_many_bytes_are_queued() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    large = bytes(READ_AHEAD_BYTES + 1)
    peer.send(framed(b"first"))
    await settle()
    peer.send(framed(large))
    assert not peer.transport.reading
    handler.release()  # the large one is handled now, nothing waits any more
    await settle()
    assert peer.transport.reading
    assert handler.seen == [b"first", large]


@in_a_loop
async def test_small_requests_are_read_ahead() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    for _ in range(10):
        peer.send(framed(b"small"))
        await settle()
    assert peer.transport.reading
    assert len(handler.seen) == 1


@in_a_loop
async def test_requests_of_a_peer_that_does_not_read_are_not_handled() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(bytes(WRITE_BUFFER_BYTES))]
    peer = Peer(network(handler))
    peer.transport.peer_reads = False
    peer.send(framed(b"one") + framed(b"two") + framed(b"three"))
    await settle()
    assert handler.seen == [b"one"]
    assert len(peer.transport.unsent) == WRITE_BUFFER_BYTES + 4
    peer.transport.read_all()
    await settle()
    assert handler.seen == [b"one", b"two"]


@in_a_loop
async def test_peer_that_does_not_read_is_no_longer_read_from() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(bytes(WRITE_BUFFER_BYTES))]
    peer = Peer(network(handler))
    peer.transport.peer_reads = False
    sent = 0
    while peer.transport.reading:
        peer.send(framed(bytes(1000)))
        sent += 1
        await settle()
    assert sent * 1004 < READ_AHEAD_BYTES + 3000
    assert len(handler.seen) == 1


@in_a_loop
async def test_connection_with_many_queued_requests_yields_to_others() -> None:
    """While one has thousands of requests in line, another's is handled after a few of them."""
    handler = Handler()
    net = network(handler)
    hog, other = Peer(net), Peer(net)
    begun = perf_counter()

    def answer(frame: bytes) -> list[Any]:
        end = perf_counter() + SLICE_S  # each takes as long as a connection may at once
        while perf_counter() < end:
            pass
        return [framed(frame)]

    handler.answer = answer
    hog.send(b"".join(framed(b"hog") for _ in range(2000)))
    await asyncio.sleep(0)
    other.send(framed(b"other"))
    while b"other" not in handler.seen:
        await asyncio.sleep(0)
    ahead = handler.seen.index(b"other")
    assert ahead <= 2 + 3 * TURN_S / SLICE_S, f"{ahead} requests in {perf_counter() - begun:.3f} s"


@in_a_loop
async def test_handler_that_yields_runs_to_completion() -> None:
    async def dispatch(frame: bytes | memoryview, connection: ConnectionInfo) -> list[Any] | None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [framed(bytes(frame))]

    peer = Peer(network(dispatch))
    peer.send(framed(b"one") + framed(b"two"))
    await settle()
    assert peer.responses == [b"one", b"two"]


@in_a_loop
async def test_longest_loop_hold_is_recorded_for_each_api() -> None:
    """Each step of a handler by itself, not what lies between them."""

    def hold(seconds: float) -> None:
        end = perf_counter() + seconds
        while perf_counter() < end:
            pass

    async def dispatch(frame: bytes | memoryview, connection: ConnectionInfo) -> list[Any] | None:
        if frame[:2] == b"\0\x01":
            hold(2 * MIN_HOLD_S)
            gate.append(asyncio.get_running_loop().create_future())
            await gate[0]
            hold(3 * MIN_HOLD_S)
        return None

    gate: list[asyncio.Future[None]] = []
    net = network(dispatch)
    peer = Peer(net)
    peer.send(framed(b"\0\x7f short") + framed(b"\0\x01 long"))
    await settle()
    hold(50 * MIN_HOLD_S)  # somebody else
    gate[0].set_result(None)
    await settle()
    ((_name, seconds),) = net.shared.loop_watch.longest.items()
    assert 3 * MIN_HOLD_S <= seconds < 50 * MIN_HOLD_S
    assert " ms" in str(net.shared.loop_watch)


@in_a_loop
async def test_frames_are_created_in_small_numbers() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    peer.send(b"".join(framed(b"%d" % n) for n in range(10 * FRAMES_AT_ONCE)))
    assert len(peer.connection._requests.frames) == FRAMES_AT_ONCE
    assert not peer.transport.reading
    await settle()
    handler.holds = lambda frame: False
    handler.release()
    while len(peer.responses) < 10 * FRAMES_AT_ONCE:
        await asyncio.sleep(0)
    assert peer.responses == handler.seen == [b"%d" % n for n in range(10 * FRAMES_AT_ONCE)]
    assert peer.transport.reading


@in_a_loop
async def test_queued_tiny_frames_count_with_their_overhead() -> None:
    """40 MB of frames of one byte, sent while a long poll waits, are read no further than one buffer."""
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    peer.send(framed(b"long poll"))
    await settle()
    tiny = framed(b"x") * 100_000
    sent = 0
    while peer.transport.reading:
        peer.send(tiny[:RECEIVE_BUFFER_BYTES])
        sent += RECEIVE_BUFFER_BYTES
        await settle()
    assert sent == RECEIVE_BUFFER_BYTES
    assert len(peer.connection._requests.frames) == FRAMES_AT_ONCE


@in_a_loop
async def test_reading_pauses_at_queued_max_request_bytes() -> None:
    handler = Handler(hold=True)
    net = network(handler, queued_max_request_bytes=1000)
    first, second = Peer(net), Peer(net)
    produce = b"\0\0" + bytes(998)
    first.send(framed(produce)[:500])  # a frame that has not come whole counts as a whole
    second.send(framed(b"\0\0 waits"))
    await settle()
    assert not second.transport.reading
    assert not handler.seen
    first.send(framed(produce)[500:])
    await settle()
    assert handler.seen == [produce]
    handler.release()
    await settle()
    assert handler.seen == [produce, b"\0\0 waits"]
    assert second.transport.reading
    handler.release()
    await settle()
    assert net.shared.memory.used == 0


@in_a_loop
async def test_closed_connection_releases_its_memory() -> None:
    handler = Handler(hold=True)
    net = network(handler, queued_max_request_bytes=1000)
    half, waiting, busy = Peer(net), Peer(net), Peer(net)
    busy.send(framed(b"\0\0 busy") + framed(b"\0\0 behind it"))
    await settle()
    half.send(framed(bytes(2000))[:100])
    waiting.send(framed(b"\0\0 waits"))
    await settle()
    assert handler.seen == [b"\0\0 busy"]
    half.transport.abort()
    await settle()
    assert handler.seen == [b"\0\0 busy", b"\0\0 waits"]
    for peer in (waiting, busy):
        peer.transport.abort()
    handler.holds = lambda frame: False
    await settle()
    for _ in range(2):
        handler.release()
        await settle()
    assert net.shared.memory.used == 0


def test_large_request_other_than_produce_is_refused_at_its_header(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        net = network(handler, queued_max_request_bytes=2**40)
        produce, other = Peer(net), Peer(net)
        for peer, key in ((produce, 0), (other, 9)):
            peer.send(struct.pack(">ih", MAX_OTHER_BYTES + 1, key))
        await settle()
        assert other.transport.lost
        assert not produce.transport.lost
        assert net.shared.memory.used == MAX_OTHER_BYTES + 1 + FRAME_OVERHEAD

    run(test)
    (line,) = caplog.messages
    assert line == (
        "connection 10.0.0.1:50000 on PLAINTEXT closed: a request of 16777217 bytes of API key 9; 16777216 is the most "
        "for a request that is not Produce: send several smaller ones"
    )
