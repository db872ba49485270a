from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.net.memory_pool import MemoryPool
from kafkalog_broker.net.read_turns import ReadTurns
from kafkalog_broker.net.request_reader import FRAME_OVERHEAD, FRAMES_AT_ONCE, READ_BYTES, RequestReader

LARGEST = 1000


LOOP = asyncio.new_event_loop()  # which does not run: frames are made of bytes alone


@pytest.fixture(autouse=True, scope="module")
def _loop_ends() -> Iterator[None]:
    yield
    LOOP.close()


def reader(shared: memoryview, max_bytes: int = LARGEST, pool: MemoryPool | None = None) -> RequestReader:
    return RequestReader(shared, max_bytes, pool or MemoryPool(), ReadTurns(LOOP))


class Wire:
    """Feeds bytes to a reader as a socket does: at most as many at once as fit into its buffer."""

    def __init__(self, buffer_bytes: int = 64, max_bytes: int = LARGEST) -> None:
        self.pool = MemoryPool(2**40)
        self.shared = memoryview(bytearray(buffer_bytes))
        self.reader = reader(self.shared, max_bytes, self.pool)

    def send(self, data: bytes) -> None:
        while data:
            buffer = self.reader.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.reader.accept_bytes(count, is_busy=False)
            while self.reader.has_more:
                self.reader.make_frames()
            self.shared[:] = b"\xee" * len(self.shared)  # another connection uses the shared buffer in between

    def received(self) -> list[bytes]:
        assert all(memoryview(frame).readonly for frame in self.reader.frames)
        return [bytes(frame) for frame in self.reader.frames]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


BODIES = st.lists(st.binary(min_size=1, max_size=LARGEST), max_size=6)


@given(bodies=BODIES, cuts=st.lists(st.integers(1, 200), min_size=1), buffer_bytes=st.integers(1, 300))
def test_frames_are_reassembled_from_any_pieces(bodies: list[bytes], cuts: list[int], buffer_bytes: int) -> None:
    wire = Wire(buffer_bytes)
    stream = b"".join(map(framed, bodies))
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        wire.send(stream[position : position + size])
        position += size
        turn += 1
    assert wire.received() == bodies
    assert wire.pool.used == sum(len(body) + FRAME_OVERHEAD for body in bodies)
    wire.reader.drop()
    assert wire.pool.used == 0


@given(bodies=BODIES)
def test_frames_received_byte_by_byte_are_reassembled(bodies: list[bytes]) -> None:
    wire = Wire()
    for byte in b"".join(map(framed, bodies)):
        wire.send(bytes([byte]))
    assert wire.received() == bodies


def test_frame_received_in_three_parts_is_complete() -> None:
    wire = Wire()
    wire.send(b"\0\0")
    wire.send(b"\0\x0aabc")
    assert not wire.reader.frames
    wire.send(b"defghij")
    assert wire.received() == [b"abcdefghij"]


@pytest.mark.parametrize("size", [-1, 0, -(2**31), LARGEST + 1, 2**31 - 1])
def test_negative_or_too_large_size_is_malformed(size: int) -> None:
    wire = Wire()
    with pytest.raises(MalformedRequest, match=f"a request of {size} bytes, socket.request.max.bytes allows 1 to 1000"):
        wire.send(framed(b"good") + struct.pack(">i", size))
    assert wire.received() == [b"good"]
    wire.reader.drop()
    assert wire.pool.used == 0


def test_frame_of_maximum_size_is_read() -> None:
    wire = Wire()
    wire.send(framed(b"x" * LARGEST))
    assert wire.received() == [b"x" * LARGEST]


def test_large_frame_is_received_into_its_own_buffer() -> None:
    wire = Wire(max_bytes=1 << 30)
    wire.send(struct.pack(">i", 1 << 30))  # says one GB: nothing is touched before it comes
    assert len(wire.reader.buffer()) == READ_BYTES


def test_frames_of_one_read_are_created_in_small_numbers() -> None:
    bodies = [b"%d" % n for n in range(FRAMES_AT_ONCE + 3)]
    stream = b"".join(map(framed, bodies)) + b"\0\0"
    shared = memoryview(bytearray(stream))
    requests = reader(shared)
    requests.accept_bytes(len(stream), is_busy=False)
    assert list(requests.frames) == bodies[:FRAMES_AT_ONCE]
    assert requests.has_more
    shared[:] = bytes(len(shared))
    requests.make_frames()
    assert list(requests.frames) == bodies
    assert not requests.has_more


def test_no_frame_begins_while_the_memory_pool_is_exhausted() -> None:
    pool = MemoryPool(100)
    shared = memoryview(bytearray(framed(b"one") + framed(b"two" * 20) + framed(b"three")))
    requests = reader(shared, pool=pool)
    requests.accept_bytes(len(shared), is_busy=False)
    assert list(requests.frames) == [b"one", b"two" * 20]  # the second goes over the limit, as in Kafka
    assert requests.has_more
    requests.make_frames()
    assert len(requests.frames) == 2
    pool.release(pool.used)
    requests.make_frames()
    assert requests.frames[-1] == b"three"
    assert pool.used == 5 + FRAME_OVERHEAD


def test_frame_that_cannot_be_allocated_returns_its_bytes_to_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(size: int, dtype: type) -> None:
        raise MemoryError

    monkeypatch.setattr("kafkalog_broker.net.request_reader.np.empty", none_left)
    wire = Wire()
    with pytest.raises(MemoryError):
        wire.send(framed(bytes(100))[:50])
    wire.reader.drop()
    assert wire.pool.used == 0


def test_waiters_for_memory_are_called_in_order() -> None:
    pool, called = MemoryPool(10), []
    assert pool.try_allocate(15)
    assert not pool.try_allocate(1)

    def takes_all() -> None:
        called.append("takes all")
        assert pool.try_allocate(20)

    pool.call_when_free(lambda: called.append("first"))
    pool.call_when_free(takes_all)
    pool.call_when_free(lambda: called.append("last"))
    pool.release(5)
    assert called == []
    pool.release(1)
    assert called == ["first", "takes all"]
    pool.release(20)
    assert called == ["first", "takes all", "last"]
