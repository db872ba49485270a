"""The order of a connection's requests and responses, and its end."""

from __future__ import annotations

import itertools
import logging
import struct
from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.net.response_writer import HELD_RESPONSES, SMALL_BYTES, WRITE_BUFFER_BYTES
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, run, settle


@in_a_loop
async def test_requests_of_a_connection_are_handled_one_at_a_time_in_order() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    peer.send(framed(b"one") + framed(b"two") + framed(b"three"))
    await settle()
    assert handler.seen == [b"one"]
    for seen in ([b"one", b"two"], [b"one", b"two", b"three"]):
        handler.release()
        await settle()
        assert handler.seen == seen
    handler.release()
    await settle()
    assert peer.responses == [b"one", b"two", b"three"]


@in_a_loop
async def test_request_without_response_writes_nothing() -> None:
    handler = Handler()
    handler.answer = lambda frame: None if frame == b"acks=0" else [framed(frame)]
    peer = Peer(network(handler))
    peer.send(framed(b"acks=0") + framed(b"acks=1"))
    await settle()
    assert peer.responses == [b"acks=1"]


@in_a_loop
async def test_response_in_pieces_is_written_in_order() -> None:
    handler = Handler()
    handler.answer = lambda frame: [b"\0\0\0\6", memoryview(b"abc"), bytearray(b"def")]
    peer = Peer(network(handler))
    peer.send(framed(b"x"))
    await settle()
    assert peer.responses == [b"abcdef"]


@in_a_loop
async def test_throttled_response_is_sent_immediately_and_the_next_request_waits(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2400  # three times what is read and written at once
    (tmp_path / "segment").write_bytes(data)
    records = FileSlice(FileHandle(str(tmp_path / "segment")), 0, len(data))
    seen = []

    async def handler(frame: bytes | memoryview, connection: ConnectionInfo) -> list[Any]:
        seen.append(bytes(frame))
        connection.mute(3600)
        return [struct.pack(">i", 4 + len(data)), b"head", records]

    peer = Peer(network(handler))
    peer.transport.peer_reads = False
    peer.send(framed(b"one") + framed(b"two"))
    await settle()
    for _ in range(3):
        assert peer.transport.unsent
        peer.transport.read_all()
        await settle()
    assert peer.responses == [b"head" + data]
    assert seen == [b"one"]
    peer.connection._writer.unmute()
    await settle()
    assert seen == [b"one", b"two"]
    peer.connection.abort()
    await settle()


@in_a_loop
async def test_responses_to_small_requests_received_together_are_written_together() -> None:
    peer = Peer(network(Handler()))
    peer.send(b"".join(framed(bytes([n])) for n in range(2 * HELD_RESPONSES + 1)))
    await settle()
    assert peer.responses == [bytes([n]) for n in range(2 * HELD_RESPONSES + 1)]
    assert peer.transport.writes == 3


@in_a_loop
async def test_response_is_written_while_the_next_request_waits() -> None:
    handler = Handler()
    peer = Peer(network(handler))
    handler.holds = lambda frame: frame == b"long poll"
    peer.send(framed(b"produce") + framed(b"long poll") + framed(b"next"))
    await settle()
    assert peer.responses == [b"produce"]
    handler.release()
    await settle()
    assert peer.responses == [b"produce", b"long poll", b"next"]


@in_a_loop
async def test_response_is_written_before_a_large_request_is_handled() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(frame[:5])]
    peer = Peer(network(handler))
    peer.send(framed(b"small") + framed(b"large" + bytes(SMALL_BYTES)) + framed(b"small"))
    await settle()
    assert peer.responses == [b"small", b"large", b"small"]
    assert peer.transport.writes == 2


@in_a_loop
async def test_held_response_is_written_before_a_later_one_in_pieces() -> None:
    handler = Handler()
    handler.answer = lambda frame: [b"\0\0\0\6", b"abc", b"def"] if frame == b"fetch" else [framed(frame)]
    peer = Peer(network(handler))
    peer.send(framed(b"one") + framed(b"fetch") + framed(b"two") + framed(b"three"))
    await settle()
    assert peer.responses == [b"one", b"abcdef", b"two", b"three"]


@in_a_loop
async def test_held_response_is_written_if_no_response_follows() -> None:
    handler = Handler()
    handler.answer = lambda frame: None if frame == b"acks=0" else [framed(frame)]
    peer = Peer(network(handler))
    peer.send(framed(b"acks=1") + framed(b"acks=0"))
    await settle()
    assert peer.responses == [b"acks=1"]


@in_a_loop
async def test_requests_received_before_end_of_stream_are_handled() -> None:
    """A producer with acks=0 sends and closes."""
    handler = Handler()
    handler.answer = lambda frame: None
    peer = Peer(network(handler))
    peer.send(framed(b"one") + framed(b"two") + framed(b"cut off")[:-1])
    assert peer.connection.eof_received()
    await settle()
    assert handler.seen == [b"one", b"two"]
    assert peer.transport.lost


@in_a_loop
async def test_half_closed_peer_gets_its_response() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    peer.send(framed(b"question"))
    await settle()
    peer.connection.eof_received()
    await settle()
    assert not peer.transport.closing
    handler.release()
    await settle()
    assert peer.responses == [b"question"]
    assert peer.transport.lost


@in_a_loop
async def test_lost_connection_notifies_the_handler_without_cancelling_it() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    told: list[bool] = []
    peer.connection.info.on_close(lambda: told.append(peer.connection.info.is_closed))
    peer.send(framed(b"long poll"))
    await settle()
    peer.transport.abort()
    await settle()
    assert told == [True]
    assert not handler.waiting[0].cancelled()
    handler.release()
    await settle()  # the response has nowhere to go, and that is no error
    assert peer.connection.task is not None
    assert peer.connection.task.exception() is None


@in_a_loop
async def test_connection_lost_with_a_pending_response_ends() -> None:
    handler = Handler()
    handler.answer = lambda frame: [framed(bytes(WRITE_BUFFER_BYTES))]
    peer = Peer(network(handler))
    peer.transport.peer_reads = False
    peer.send(framed(b"one"))
    await settle()
    peer.transport.abort()
    await settle()
    assert peer.connection.task is not None
    assert peer.connection.task.done()


@pytest.mark.parametrize("size", [-1, 0, 101, 2**31 - 1])
def test_invalid_frame_size_closes_the_connection_with_one_log_line(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        handler = Handler()
        peer = Peer(network(handler, socket_request_max_bytes=100))
        peer.send(struct.pack(">i", size))
        await settle()
        assert peer.transport.lost
        assert not handler.seen

    run(test)
    (line,) = caplog.messages
    assert line == (
        f"connection 10.0.0.1:50000 on PLAINTEXT closed: a request of {size} bytes, "
        "socket.request.max.bytes allows 1 to 100"
    )


def test_closing_a_connection_keeps_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()

        def answer(frame: bytes) -> list[Any]:
            if frame == b"bad":
                raise ConnectionClosed("bad was sent", logging.ERROR)
            return [framed(frame)]

        handler.answer = answer
        net = network(handler)
        bad, good = Peer(net), Peer(net)
        bad.send(framed(b"good") + framed(b"bad") + framed(b"never"))
        await settle()
        good.send(framed(b"still"))
        await settle()
        assert bad.responses == [b"good"]
        assert bad.transport.lost
        assert good.responses == [b"still"]
        assert handler.seen == [b"good", b"bad", b"still"]
        assert len(net.quotas.open) == 1

    run(test)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", "connection 10.0.0.1:50000 on PLAINTEXT closed: bad was sent")
    ]


def test_unexpected_exception_of_the_handler_closes_the_connection_with_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        handler = Handler()
        handler.answer = lambda frame: [[framed(frame)]][len(frame)]
        peer = Peer(network(handler))
        peer.send(framed(b"x"))
        await settle()
        assert peer.transport.lost

    run(test)
    assert caplog.messages == ["connection 10.0.0.1:50000 on PLAINTEXT closed: IndexError: list index out of range"]


def test_defect_of_the_request_loop_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        handler.answer = lambda frame: [1]  # not a piece of a response, so that writing it fails
        peer = Peer(network(handler))
        peer.send(framed(b"x"))
        await settle()
        assert peer.transport.lost

    run(test)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("connection 10.0.0.1:50000 on PLAINTEXT closed: TypeError: ")
    assert record.exc_info is not None
    traceback = record.exc_info[2]
    assert "_serve_requests" in [frame.f_code.co_name for frame, _ in walk_tb(traceback)]


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 2000), min_size=1, max_size=5),
    order=st.lists(st.booleans(), max_size=60),
)
def test_all_responses_are_sent_for_every_interleaving(bodies: list[bytes], cuts: list[int], order: list[bool]) -> None:
    async def test() -> None:
        handler = Handler(hold=True)
        peer = Peer(network(handler))
        peer.transport.peer_reads = False
        stream = b"".join(map(framed, bodies))
        turns = itertools.chain(order, itertools.repeat(True))
        turn = 0
        while len(peer.responses) < len(bodies):
            if stream and peer.transport.reading and next(turns):
                cut = cuts[turn % len(cuts)]
                turn += 1
                peer.send(stream[:cut])
                stream = stream[cut:]
            elif handler.waiting and bool(next(turns)):
                handler.release()
            else:
                peer.transport.read_all()
            await settle()
        assert peer.responses == handler.seen == bodies

    run(test)
