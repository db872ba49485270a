"""Metrics that clients push: which values and series are kept. The tests encode OTLP field by field."""

from __future__ import annotations

import asyncio
import gzip
import struct
import sys
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import lz4.frame
import pytest
import snappy
import zstandard

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.telemetry import client_metrics, otlp
from kafkalog_broker.telemetry.client_metrics import ClientMetrics
from kafkalog_spark.format.varints import uvarint

ID, SHOWN = UUID(int=2), "AAAAAAAAAAAAAAAAAAAAAg"


def field(number: int, data: bytes) -> bytes:
    return uvarint(number << 3 | 2) + uvarint(len(data)) + data


def attribute(key: str, value: bytes) -> bytes:
    return field(7, field(1, key.encode()) + field(2, value))


def text(value: str) -> bytes:
    return field(1, value.encode())


def double(value: float, *attributes: bytes) -> bytes:
    return field(1, b"".join(attributes) + b"\x21" + struct.pack("<d", value))


def whole(value: int, *attributes: bytes) -> bytes:
    return field(1, b"".join(attributes) + b"\x31" + struct.pack("<q", value))


def gauge(name: str, *points: bytes) -> bytes:
    return field(2, field(1, name.encode()) + field(5, b"".join(points)))


def total(name: str, temporality: int, *points: bytes) -> bytes:
    return field(2, field(1, name.encode()) + field(7, b"".join(points) + b"\x10" + bytes((temporality, 0x18, 1))))


def pushed(*metrics: bytes) -> bytes:
    resource = field(1, field(1, b"of a client"))  # a field that the decoder does not know
    return field(1, resource + field(2, b"".join(metrics)))


class World:
    def __init__(self) -> None:
        self.kept = ClientMetrics(self)  # type: ignore[arg-type]

    async def run_computing(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    def push(self, payload: bytes, codec: int = 0, instance: UUID = ID, client_id: str = "me") -> None:
        made: Any = SimpleNamespace(id=instance, attributes={"client_id": client_id}, is_removed=False)
        asyncio.run(self.kept.receive(made, codec, payload))

    def refused(self, payload: bytes, codec: int = 0) -> ErrorCode:
        with pytest.raises(BrokerError) as caught:
            self.push(payload, codec)
        return caught.value.code

    def all(self) -> dict[tuple[str, str], float]:
        found = list(self.kept.samples())
        assert {(client_id, instance) for client_id, instance, *_ in found} <= {("me", SHOWN)}
        return {(name, attributes): value for _, _, name, attributes, value in found}


@pytest.fixture
def world() -> World:
    return World()


def test_gauges_keep_the_last_value_and_deltas_are_summed(world: World) -> None:
    node = attribute("node", b"\x18\x07"), attribute("leads", b"\x10\x01"), attribute("share", b"\x21" + bytes(8))
    for value in (5, 0):
        world.push(pushed(
            gauge("a", double(value), whole(-value, attribute("topic", text("orders")), *node)),
            total("delta", 1, double(value + 2.5)),
            total("cumulative", 2, double(value + 2.5)),
        ))  # fmt: skip
    assert world.all() == {
        ("a", ""): 0, ("a", "topic=orders,node=7,leads=True,share=0.0"): 0, ("delta", ""): 10, ("cumulative", ""): 2.5,
    }  # fmt: skip
    assert (world.kept.pushes, world.kept.dropped) == (2, 0)


CODECS = {
    1: gzip.compress, 2: snappy.compress, 3: lz4.frame.compress, 4: zstandard.ZstdCompressor().compress,
}  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_push_of_every_codec_is_read_up_to_the_size_limit(
    world: World, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = pushed(gauge("a", double(1)))
    world.push(CODECS[codec](payload), codec)
    assert world.all() == {("a", ""): 1}
    assert world.kept.bytes == len(CODECS[codec](payload))
    monkeypatch.setattr(client_metrics, "MAX_DECOMPRESSED", len(payload) - 1)
    assert world.refused(CODECS[codec](payload), codec) is ErrorCode.invalid_record
    assert world.refused(payload) is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", range(5))
def test_malformed_push_is_an_invalid_record(world: World, codec: int) -> None:
    assert world.refused(b"\xff\xff\xff nonsense", codec) is ErrorCode.invalid_record
    assert world.all() == {}


def test_series_of_clients_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "MAX_SERIES_OF_A_CLIENT", 3)
    monkeypatch.setattr(client_metrics, "MAX_CLIENT_SERIES", 4)
    long = gauge("x" * 201, double(1)), gauge("a", double(1, attribute("k", text("v" * 500)))), gauge("", double(1))
    world.push(pushed(*long))
    assert (world.all(), world.kept.dropped) == ({}, 3)
    world.push(pushed(*(gauge(f"m{number}", double(number)) for number in range(5))))
    assert (len(world.all()), world.kept.dropped) == (3, 5)
    other = UUID(int=3)
    world.push(pushed(gauge("a", double(1)), gauge("b", double(1))), instance=other, client_id="c")
    found = [(client_id, name) for client_id, instance, name, *_ in world.kept.samples() if instance != SHOWN]
    assert found == [("c", "a")]
    assert world.kept.dropped == 6
    world.kept.forget(ID)
    world.push(pushed(gauge("b", double(2))), instance=other)  # there is room again
    assert len(list(world.kept.samples())) == 2


EMPTY = field(5, b"\x0a\x00" * 9)  # gauge with nine empty points
LARGE = {
    "resources": b"\x0a\x00" * 9,
    "scopes": field(1, b"\x12\x00" * 9),
    "metrics": field(1, field(2, b"\x12\x00" * 9)),
    "points": pushed(field(2, EMPTY)),
    "points of two metrics": pushed(field(2, EMPTY[:-10]), field(2, EMPTY[:-10])),
    "attributes": pushed(gauge("a", field(1, b"\x3a\x00" * 9))),
}


@pytest.mark.parametrize("kind", LARGE)
def test_push_with_too_many_messages_of_any_kind_is_an_invalid_record(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MAX_MESSAGES", 8)
    assert world.refused(LARGE[kind]) is ErrorCode.invalid_record
    assert world.all() == {}


def test_pushes_are_read_two_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[int] = []
    running = 0

    async def run_computing(function: Any, *arguments: Any) -> Any:
        nonlocal running
        running += 1
        reading.append(running)
        await asyncio.sleep(0)
        running -= 1
        return function(*arguments)

    monkeypatch.setattr(world, "run_computing", run_computing)
    made: Any = SimpleNamespace(id=ID, attributes={"client_id": "me"}, is_removed=False)

    async def push() -> None:
        await asyncio.gather(*(world.kept.receive(made, 0, pushed(gauge("a", double(1)))) for _ in range(8)))

    asyncio.run(push())
    assert max(reading) == 2
    assert len(reading) == 8


def test_pushes_are_only_counted_without_protobuf(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "kafkalog_broker.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    for _ in range(2):
        world.push(pushed(gauge("a", double(1))))
    assert (world.kept.pushes, world.all()) == (2, {})
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "metrics of clients are counted and not read"
    ]
