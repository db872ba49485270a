from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.net.response_stream import BUFFER_BYTES, ResponseStream
from kafkalog_broker.net.response_writer import ResponseWriter
from kafkalog_broker.storage.partition.file_handles import FileHandle, FileSlice
from tests.broker.net.helpers.fakes import in_a_loop

FILE = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> FileHandle:
    path = tmp_path_factory.mktemp("slices") / "segment.log"
    path.write_bytes(FILE)
    return FileHandle(str(path))


def read_buffers(stream: ResponseStream, size: int) -> list[bytes]:
    """Return the contents of the buffers of `size` bytes, up to the end of the stream."""
    buffer, parts = memoryview(bytearray(size)), []
    while count := stream.fill(buffer):
        parts.append(bytes(buffer[:count]))
    return parts


pieces = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(st.integers(0, len(FILE)), st.integers(0, len(FILE))).map(lambda ends: (min(ends), max(ends))),
    ),
    max_size=8,
)


@given(pieces=pieces, size=st.integers(1, 3000))
def test_stream_fills_buffers_with_its_pieces_in_order(handle, pieces, size):
    wanted = b"".join(one if isinstance(one, bytes) else FILE[one[0] : one[1]] for one in pieces)
    stream = ResponseStream(
        one if isinstance(one, bytes) else FileSlice(handle, one[0], one[1] - one[0]) for one in pieces
    )
    parts = read_buffers(stream, size)
    assert b"".join(parts) == wanted
    assert all(len(part) == size for part in parts[:-1])


def test_file_deleted_during_the_stream_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FILE)
    stream = ResponseStream([FileSlice(FileHandle(str(path)), 100, 5000)])
    buffer = memoryview(bytearray(2000))
    assert stream.fill(buffer) == 2000
    path.unlink()
    assert b"".join(read_buffers(stream, 2000)) == FILE[2100:5100]


def test_truncated_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FILE)
    stream = ResponseStream([b"head", FileSlice(FileHandle(str(path)), 100, 5000)])
    os.truncate(path, 3000)
    with pytest.raises(BrokerError, match=r"the file ends at byte 2900 of \[100, 5100\) of a segment") as raised:
        read_buffers(stream, 1000)
    assert raised.value.code == ErrorCode.kafka_storage_error


def test_failed_read_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FILE)
    stream = ResponseStream([FileSlice(FileHandle(str(path)), 0, 10)])

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("kafkalog_broker.storage.partition.log_segment.os.preadv", broken)
    with pytest.raises(BrokerError, match=r"byte 0 of .* cannot be read: .*Input/output error"):
        read_buffers(stream, 1000)


class Transport:
    """A transport with a fixed number of unsent bytes."""

    def __init__(self, unsent: int) -> None:
        self.unsent, self.written = unsent, list[memoryview]()

    def write(self, data: memoryview) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent


@pytest.mark.parametrize("unsent", [0, 1])
@in_a_loop
async def test_buffer_is_reused_only_after_its_bytes_are_sent(unsent: int) -> None:
    writer, transport = ResponseWriter(asyncio.get_running_loop(), []), Transport(unsent)
    writer.transport = cast(asyncio.Transport, transport)
    await writer.stream([bytes(BUFFER_BYTES), b"rest"])
    first, second = transport.written
    assert (len(first), bytes(second)) == (BUFFER_BYTES, b"rest")
    assert (first.obj is second.obj) == (unsent == 0)
