"""Hand-written client of the protocol versions in the protocol guides; it uses no code of the broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.log.helpers.plain_decoder import Batch, decode_batches

Ask = Callable[[bytes], bytes]
"""A frame without its size to the response from the correlation id on."""


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def array(*elements: bytes) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def connect_over_network(host: str, port: int) -> Ask:
    """Connect to a broker; return a function that sends a request. OSError: the broker closed the connection."""
    connection = socket.create_connection((host, port), 30)

    def receive(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def ask(frame: bytes) -> bytes:
        connection.sendall(sized(frame))
        return receive(struct.unpack(">i", receive(4))[0])

    return ask


class Fetched(NamedTuple):
    """error, high watermark, and the message set as it came."""

    error: int
    high_watermark: int
    data: bytes


class OldClient:
    """A client whose requests name one partition each."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def request(self, key: int, version: int, body: bytes) -> bytes:
        """The body of the response."""
        answer = self._ask(struct.pack(">hhih", key, version, 77, 3) + b"old" + body)
        assert answer[:4] == struct.pack(">i", 77)
        return answer[4:]

    def produce(self, version: int, topic: str, data: bytes, acks: int = -1, partition: int = 0) -> tuple[int, ...]:
        """(error, offset), and the append time from version 2 on."""
        head = struct.pack(">hi", acks, 10_000) if version < 3 else string(None) + struct.pack(">hi", acks, 10_000)
        answer = self.request(
            0, version, head + array(string(topic) + array(struct.pack(">i", partition) + sized(data)))
        )
        at = 4 + len(string(topic)) + 4
        found: tuple[int, ...] = struct.unpack_from(">ihqq" if version >= 2 else ">ihq", answer, at)
        rest = at + struct.calcsize(">ihqq" if version >= 2 else ">ihq") + (4 if version else 0)
        assert len(answer) == rest
        return found[1:]

    def fetch(
        self, version: int, topic: str, offset: int, most: int = 1 << 20, *, most_of_all: int = 50 << 20, wait: int = 10
    ) -> Fetched:
        body = struct.pack(">iii", -1, wait, 1)
        body += struct.pack(">i", most_of_all) if version >= 3 else b""
        body += b"\0" if version >= 4 else b""
        answer = self.request(1, version, body + array(string(topic) + array(struct.pack(">iqi", 0, offset, most))))
        at = (4 if version else 0) + 4 + len(string(topic)) + 4
        form = ">ihqi" if version < 4 else ">ihqqii"
        _, error, high_watermark, *_, size = struct.unpack_from(form, answer, at)
        data = answer[at + struct.calcsize(form) :]
        assert len(data) == max(size, 0)
        return Fetched(error, high_watermark, data)

    def list_offsets(self, topic: str, time_: int, most: int, partition: int = 0) -> tuple[int, list[int]]:
        """(error, offsets), version 0."""
        one = array(string(topic) + array(struct.pack(">iqi", partition, time_, most)))
        answer = self.request(2, 0, struct.pack(">i", -1) + one)
        _, error, count = struct.unpack_from(">ihi", answer, 4 + len(string(topic)) + 4)
        return error, list(struct.unpack(f">{count}q", answer[len(answer) - 8 * count :] if count else b""))

    def commit(
        self,
        version: int,
        group: str,
        topic: str,
        offset: int,
        metadata: str | None,
        *,
        partition: int = 0,
        generation: int = -1,
        member: str = "",
        timestamp: int = -1,
    ) -> int:
        """The error, versions 0 and 1."""
        head = string(group) + (struct.pack(">i", generation) + string(member) if version else b"")
        one = (
            struct.pack(">iq", partition, offset)
            + (struct.pack(">q", timestamp) if version else b"")
            + string(metadata)
        )
        answer = self.request(8, version, head + array(string(topic) + array(one)))
        return int(struct.unpack(">h", answer[-2:])[0])

    def committed(self, version: int, group: str, topic: str, partition: int = 0) -> tuple[int, str, int]:
        """(offset, metadata, error), versions 0 and 1."""
        one = array(string(topic) + array(struct.pack(">i", partition)))
        answer = self.request(9, version, string(group) + one)
        at = 4 + len(string(topic)) + 4
        _, offset, length = struct.unpack_from(">iqh", answer, at)
        metadata = answer[at + 14 : at + 14 + max(length, 0)].decode()
        return offset, metadata, int(struct.unpack(">h", answer[-2:])[0])

    def has_topic(self, topic: str) -> bool:
        """Whether it has a partition with a leader, by Metadata 0, which makes it where that is allowed."""
        answer = self.request(3, 0, array(string(topic)))
        at = answer.rindex(string(topic))
        (error,) = struct.unpack_from(">h", answer, at - 2)
        (count,) = struct.unpack_from(">i", answer, at + 2 + len(topic))
        return bool(error == 0 and count and struct.unpack_from(">h", answer, at + 2 + len(topic) + 4)[0] == 0)

    def until_there(self, topic: str) -> None:
        for _ in range(300):
            if self.has_topic(topic):
                return
            time.sleep(0.05)
        raise TimeoutError(topic)

    def walk(self, version: int, topic: str, most: int) -> list[Batch]:
        """Fetch from offset 0 to the high watermark, as a consumer does: on from the offset after the last record. A
        set without a whole message of use has it ask for ten times as much."""
        found: list[Batch] = []
        offset, asked = 0, most
        while True:
            error, high_watermark, data = self.fetch(version, topic, offset, asked)
            assert error == 0, (version, offset, error)
            if offset >= high_watermark:
                return found
            batches = whole(data)
            last = max((batch.last_offset for batch in batches), default=-1)
            if last < offset:
                asked *= 10
                assert asked < 1 << 30, f"nothing to go on with at offset {offset}"
                continue
            found += batches
            offset, asked = last + 1, most


def whole(data: bytes) -> list[Batch]:
    """Return the complete batches of a message set, after a check of their CRCs. The last batch may be truncated."""
    end = 0
    while len(data) - end >= 17:
        size = 12 + int(struct.unpack_from(">i", data, end + 8)[0])
        if size > len(data) - end:
            break
        end += size
    return list(decode_batches(data[:end]))


def summary(batches: list[Batch], digest: Callable[[Any], str]) -> list[list[Any]]:
    """[offset, magic, codec, timestamp, timestamp type, digest of key and value] of each record, each offset once: a
    set may begin before the offset that was asked for."""
    rows: dict[int, list[Any]] = {}
    for batch in batches:
        for one in () if batch.is_control else batch.records:
            rows[one.offset] = [
                one.offset, batch.magic, batch.codec, one.timestamp, one.timestamp_type, digest((one.key, one.value)),
            ]  # fmt: skip
    return list(rows.values())
