"""Response frames read from a connection: order, reassembly, and reuse of their memory."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from kafkalog_broker.mirror import response_frames
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.response_frames import ResponseFrames
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.protocol.mirror_messages import METADATA

LARGE = response_frames._POOLED_FROM


class Before(asyncio.Protocol):
    """The previous protocol of the connection; `lost`: the argument of connection_lost."""

    def __init__(self) -> None:
        self.lost: list[Exception | None] = []

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Transport:
    def __init__(self) -> None:
        self.is_closed = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self.is_closed = True


def made() -> tuple[ResponseFrames, Transport, Before]:
    before, transport = Before(), Transport()
    frames = ResponseFrames(before, transport)  # type: ignore[arg-type]
    assert transport.protocol is frames
    return frames, transport, before


def feed(frames: ResponseFrames, data: bytes, pieces: random.Random | None = None) -> None:
    """Feed bytes as an event loop does: at most as many as fit into the buffer."""
    while data and not frames.is_over:
        buffer = frames.get_buffer(-1)
        size = min(len(buffer), len(data))
        size = size if pieces is None else pieces.randint(1, size)
        buffer[:size] = data[:size]
        frames.buffer_updated(size)
        data = data[size:]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_responses_received_in_pieces_are_reassembled_in_order() -> None:
    draw = random.Random(3)
    bodies = [draw.randbytes(draw.choice((1, 3, 4, 5, 70, 5000))) for _ in range(200)]

    async def run() -> list[bytes]:
        frames, _, _ = made()
        expected = [frames.expect() for _ in bodies]
        feed(frames, b"".join(map(framed, bodies)), draw)
        return [bytes(await one) for one in expected]

    assert asyncio.run(run()) == bodies


def test_memory_of_a_large_response_is_reused_after_its_release() -> None:
    async def run() -> None:
        frames, _, _ = made()

        async def one(fill: bytes, size: int = LARGE + 5) -> memoryview:
            expected = frames.expect()
            feed(frames, framed(fill * size))
            return await expected

        first, second = await one(b"a"), await one(b"b")
        assert not np.shares_memory(first, second)
        assert bytes(first) == b"a" * (LARGE + 5)  # the second one has not gone over it
        frames.give_back(first[100:200])  # a part is as good as the whole
        frames.give_back(first)  # twice is harmless
        third, fourth = await one(b"c", LARGE), await one(b"d")
        assert np.shares_memory(third, first)
        assert len(third) == LARGE
        assert not any(np.shares_memory(fourth, before) for before in (first, second, third))
        assert bytes(second) == b"b" * (LARGE + 5)
        for response in (second, third, fourth):
            frames.give_back(response)
        larger = await one(b"e", 2 * LARGE)  # no buffer is large enough
        assert len(larger) == 2 * LARGE
        small = await one(b"f", 100)
        frames.give_back(small)
        assert (await one(b"g", 100)).obj is not small.obj

    asyncio.run(run())


def test_second_release_of_a_reused_buffer_does_not_free_it() -> None:
    async def run() -> None:
        frames, _, _ = made()

        async def receive(fill: bytes) -> memoryview:
            expected = frames.expect()
            feed(frames, framed(fill * LARGE))
            return await expected

        first = await receive(b"a")
        frames.give_back(first)
        second = await receive(b"b")
        assert np.shares_memory(second, first)
        frames.give_back(first)
        assert not np.shares_memory(await receive(b"c"), second)
        assert bytes(second) == b"b" * LARGE

    asyncio.run(run())


def test_response_to_a_cancelled_request_is_dropped() -> None:
    async def run() -> bytes:
        frames, _, _ = made()
        gone, wanted = frames.expect(), frames.expect()
        gone.cancel()
        feed(frames, framed(b"for nobody") + framed(b"wanted"))
        return bytes(await wanted)

    assert asyncio.run(run()) == b"wanted"


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_malformed_response_closes_the_connection(size: bytes) -> None:
    async def run() -> None:
        frames, transport, _ = made()
        expected = frames.expect()
        feed(frames, size)
        with pytest.raises(ConnectionError, match="not a response to a request"):
            await expected
        assert transport.is_closed
        with pytest.raises(ConnectionError):
            await frames.expect()

    asyncio.run(run())


def test_unknown_correlation_id_closes_the_connection() -> None:
    async def run() -> None:
        frames, transport, _ = made()
        feed(frames, framed(b"x"))
        assert transport.is_closed

    asyncio.run(run())


@pytest.mark.parametrize("error", [None, OSError("reset")])
def test_lost_connection_fails_pending_requests(error: Exception | None) -> None:
    async def run() -> None:
        frames, _, before = made()
        expected = frames.expect()
        feed(frames, b"\0\0\0\x09half")
        frames.connection_lost(error)
        with pytest.raises(OSError, match="reset" if error else "closed the connection"):
            await expected
        assert before.lost == [error]

    asyncio.run(run())


@pytest.mark.parametrize("is_over", [True, False])
def test_request_over_a_closed_transport_fails_without_an_unretrieved_exception(is_over: bool) -> None:
    """A transport of uvloop raises RuntimeError for a write after it was closed."""

    class Closed(Transport):
        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

    async def run() -> list[str]:
        logged: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))
        connection = Mock(_protocol=Before(), _versions={METADATA: (0, 12)})
        connection._writer.transport = transport = Closed()
        source = SourceConnection(connection, "source:9092", ClientSettings(), {})
        if is_over:
            transport.protocol.connection_lost(None)
        with pytest.raises(SourceUnreachable):
            await source.call(METADATA, lambda answer: answer, topics=None)
        transport.protocol.connection_lost(None)
        gc.collect()
        return logged

    assert asyncio.run(run()) == []
