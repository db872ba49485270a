"""How much of large frames is read in one round of the event loop."""

from __future__ import annotations

import asyncio
import struct

from kafkalog_broker.net.read_turns import BYTES_PER_ITERATION, RESUMED_PER_ITERATION, ReadTurns
from kafkalog_broker.net.request_reader import READ_BYTES
from tests.broker.net.helpers import fakes
from tests.broker.net.helpers.fakes import Handler, Peer, in_a_loop

SIZE = 4 * BYTES_PER_ITERATION
FRAME = struct.pack(">i", SIZE) + bytes(SIZE)  # Produce: API key 0


@in_a_loop
async def test_large_frames_are_read_in_bounded_pieces_per_loop_round() -> None:
    handler = Handler()
    handler.answer = lambda frame: [b"\0\0\0\1", b"a"]
    network = fakes.network(handler, socket_request_max_bytes=SIZE)
    peers = [Peer(network) for _ in range(3 * RESUMED_PER_ITERATION)]
    left = [memoryview(FRAME)] * len(peers)
    most, rounds = 0, 0
    while any(map(len, left)):
        read = 0
        for number, peer in enumerate(peers):  # as an event loop does: whoever may read gets all that the socket holds
            while len(left[number]) and peer.transport.reading:
                before = len(left[number])
                buffer = peer.connection.get_buffer(-1)
                count = min(len(buffer), before)
                buffer[:count] = left[number][:count]
                left[number] = left[number][count:]
                peer.connection.buffer_updated(count)
                read += count
        if rounds:  # in the first one each begins its frame: one read of the shared buffer
            most = max(most, read)
        rounds += 1
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert most <= BYTES_PER_ITERATION + (RESUMED_PER_ITERATION + 1) * READ_BYTES
    assert [len(frame) for frame in handler.seen] == [SIZE] * len(peers)
    assert all(peer.responses == [b"a"] for peer in peers)


@in_a_loop
async def test_failure_of_one_connection_does_not_leave_the_others_paused() -> None:
    loop, failures = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns, resumed = ReadTurns(loop), []

    def fail() -> None:
        raise ConnectionResetError

    def resume() -> None:
        resumed.append(1)

    assert turns.account_for(BYTES_PER_ITERATION, fail)
    assert turns.account_for(1, resume)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [type(error) for error in failures] == [ConnectionResetError]
    assert resumed == [1]
    assert turns.account_for(BYTES_PER_ITERATION, resume)
    for _ in range(3):
        await asyncio.sleep(0)
    assert resumed == [1, 1]
