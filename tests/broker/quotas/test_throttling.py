"""A running broker with quotas: throttle times in responses, and muting of throttled connections."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.delete_topics.v6 import request as delete_topics
from kio.schema.describe_acls.v3 import request as describe_acls
from kio.schema.describe_client_quotas.v1 import request as describe
from kio.schema.index import api_key_map
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.types import TopicName
from kio.static.primitive import f64, i8, i32, i32Timedelta

from kafkalog_broker import api
from kafkalog_broker.admin.topic_creation import ensure_topic
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.client_messages import create_topic_request, decode_response
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.fetch_messages import FetchResponse
from kafkalog_broker.protocol.produce_messages import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.responses import build_response, with_throttle_time
from kafkalog_broker.protocol.served_apis import Layer
from kafkalog_broker.server import Options, Server
from kafkalog_broker.testing_support.client_requests import frame_of
from kafkalog_spark.log.write.encoded_batch import build_batch
from tests.broker.manual_clock import ManualClock
from tests.broker.metrics.test_metrics import fetch_frame, produce_frame

api.load_all()


def alteration(values: dict[str, float | None], **entity: str | None) -> Any:
    named = tuple(
        alter.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
    )
    ops = tuple(alter.OpData(key=key, value=f64(value or 0.0), remove=value is None) for key, value in values.items())
    return alter.AlterClientQuotasRequest(entries=(alter.EntryData(entity=named, ops=ops),), validate_only=False)


class Client:
    """One connection to a broker in this process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, made: Connection) -> None:
        self.reader, self.writer, self.made = reader, writer, made

    async def send(self, frame: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        return await self.answer()

    async def answer(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def ask(self, request: Any) -> Any:
        return decode_response(request.__api_key__, request.__version__, await self.send(frame_of(request)))

    @property
    def is_muted(self) -> bool:
        return self.made._writer._muted is not None

    def unmute(self) -> None:
        """End the mute at once, without a wait for its time."""
        self.made._writer.unmute()


def with_broker(tmp_path: Path, scenario: Callable[[Server, Callable[[], Awaitable[Client]]], Awaitable[None]]) -> None:
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    writers = []

    async def connect(server: Server) -> Client:
        before = set(server.network.quotas.open)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.broker.advertised[0].port)
        writers.append(writer)
        while not (new := server.network.quotas.open - before):
            await asyncio.sleep(0)
        connection = new.pop()
        assert isinstance(connection, Connection)
        return Client(reader, writer, connection)

    async def go() -> None:
        server = await Server.start(config, Options(clock=ManualClock()))
        try:
            await server.broker.lifecycle.coordinators_loaded.wait()
            await scenario(server, partial(connect, server))
        finally:
            for writer in writers:
                writer.close()
            await server.stop()

    asyncio.run(go())


def advance(server: Server, ms: int) -> None:
    assert isinstance(server.broker.clock, ManualClock)
    server.broker.clock.advance(ms)


METADATA_TIMEOUT = timedelta(seconds=1)
METADATA = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def test_only_the_throttled_producer_gets_a_throttle_time_and_is_muted(tmp_path: Path) -> None:
    batch = bytes(build_batch([(None, b"v" * 900)], 0).data)
    frame = produce_frame("orders", batch)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        await ensure_topic(server.broker, "orders", 1, {})
        slow, other = await connect(), await connect()
        unthrottled = dict(server.broker.apis)
        assert (await slow.ask(alteration({"producer_byte_rate": 200.0}, user="ANONYMOUS", client_id=None))).entries
        assert server.broker.apis != unthrottled
        assert (await slow.send(frame))[-4:] == struct.pack(">i", 0)
        wait_ms = 5 * (2 * len(frame) - 2000)  # at 200 bytes a second, beyond those of ten seconds
        response = await slow.send(frame)
        assert struct.unpack(">i", response[-4:])[0] == wait_ms
        assert server.broker.logs.get("orders", 0).log_end_offset == 2  # type: ignore[union-attr]
        assert slow.is_muted
        slow.writer.write(2 * (struct.pack(">i", len(frame)) + frame))
        for _ in range(3):
            await other.ask(METADATA)
        assert server.broker.logs.get("orders", 0).log_end_offset == 2  # type: ignore[union-attr]
        slow.unmute()
        await slow.answer()
        assert slow.is_muted
        assert server.broker.logs.get("orders", 0).log_end_offset == 3  # type: ignore[union-attr]
        slow.unmute()
        await slow.answer()
        advance(server, 1_000_000)
        slow.unmute()
        assert (await slow.send(frame))[-4:] == struct.pack(">i", 0)
        await slow.ask(alteration({"producer_byte_rate": None}, user="ANONYMOUS", client_id=None))
        assert server.broker.apis == unthrottled, "without quotas no request is looked at"

    with_broker(tmp_path, scenario)


def test_throttled_consumer_gets_an_empty_response_and_its_records_later(tmp_path: Path) -> None:
    batch = bytes(build_batch([(None, b"v" * 900)], 0).data)

    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        await ensure_topic(server.broker, "orders", 1, {})
        client = await connect()
        for _ in range(2):
            await client.send(produce_frame("orders", batch))
        await client.ask(alteration({"consumer_byte_rate": 100.0}, client_id=None))
        fetched = await client.send(fetch_frame("orders"))
        assert batch[61:] in fetched, "no more than the windows allow"
        assert fetched.count(batch[61:]) == 1
        again = await client.send(fetch_frame("orders"))
        assert struct.unpack_from(">ii", again, 4) == (10 * (2 * len(batch) - 1000), 0)
        assert client.is_muted
        client.unmute()
        advance(server, 12_000)
        assert batch[61:] in await client.send(fetch_frame("orders"))

    with_broker(tmp_path, scenario)


def test_mutations_beyond_the_quota_are_refused_for_each_topic(tmp_path: Path) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(alteration({"controller_mutation_rate": 1.0}, client_id="kafkalog-testing"))
        made = await client.ask(create_topic_request("a", 12, {}))
        assert [int(topic.error_code) for topic in made.topics] == [0]
        assert made.throttle_time.total_seconds() == 1
        client.unmute()
        refused = await client.ask(create_topic_request("b", 1, {}))
        assert [(topic.name, topic.error_code, topic.error_message) for topic in refused.topics] == [
            ("b", ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
        ]
        assert "b" not in server.broker.topics
        client.unmute()
        more = enlarging(("a", 13))
        assert [one.error_code for one in (await client.ask(more)).results] == [ErrorCode.throttling_quota_exceeded]
        client.unmute()
        gone = deleting("a")
        assert [one.error_code for one in (await client.ask(gone)).responses] == [ErrorCode.throttling_quota_exceeded]
        client.unmute()
        advance(server, 1000)
        assert [one.error_code for one in (await client.ask(gone)).responses] == [ErrorCode.none]

    with_broker(tmp_path, scenario)


class DeniedAccess:
    """Access that denies every operation on the topic "secret", DESCRIBE included."""

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        return ErrorCode.topic_authorization_failed if name == "secret" else ErrorCode.none

    def may(self, operation: Any, resource: Any, name: str | None, *, quiet: bool = False) -> bool:
        return name != "secret"

    def operations(self, resource: Any, name: str) -> int:
        raise AssertionError("no request of these tests asks for operations")


def denying(served: Api) -> Api:
    async def handler(request: Request, broker: Any) -> Any:
        request.access = DeniedAccess()
        return await served.respond(request, broker)

    return replace(served, handler=handler)


def creating(*topics: tuple[str, int], configs: dict[str, str] | None = None) -> Any:
    made = [create_topic_request(name, partitions, configs or {}) for name, partitions in topics]
    return made[0]._replace(topics=tuple(topic for one in made for topic in one.topics))


def deleting(*topics: Any) -> Any:
    names = [(topic, None) if isinstance(topic, str) else (None, topic) for topic in topics]
    states = (delete_topics.DeleteTopicState(name=TopicName(name) if name else None, topic_id=of) for name, of in names)
    return delete_topics.DeleteTopicsRequest(topics=tuple(states), timeout=i32Timedelta.parse(METADATA_TIMEOUT))


def enlarging(*topics: tuple[str, int]) -> Any:
    kind = create_partitions.CreatePartitionsTopic
    return create_partitions.CreatePartitionsRequest(
        topics=tuple(kind(name=TopicName(name), count=i32(count), assignments=None) for name, count in topics),
        timeout=i32Timedelta.parse(METADATA_TIMEOUT), validate_only=False,
    )  # fmt: skip


def codes(answer: Any) -> dict[str | None, str]:
    field = next(name for name in ("topics", "responses", "results") if hasattr(answer, name))
    return {topic.name: ErrorCode(topic.error_code).name for topic in getattr(answer, field)}


def test_topics_refused_for_another_reason_are_not_charged(tmp_path: Path) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        server.broker.apis.set_layer(Layer.ACCESS, denying)
        client = await connect()
        await ensure_topic(server.broker, "there", 3, {})
        await ensure_topic(server.broker, "secret", 3, {})
        await client.ask(alteration({"controller_mutation_rate": 1.0}, client_id="kafkalog-testing"))
        free: list[tuple[Any, dict[str | None, str]]] = [
            (creating(("huge", 2**31 - 1)), {"huge": "policy_violation"}),
            (creating(("a", 5000), configs={"no.such": "1"}), {"a": "invalid_config"}),
            (creating(("there", 5000)), {"there": "topic_already_exists"}),
            (creating(("secret", 5000)), {"secret": "topic_authorization_failed"}),
            (creating(("a", 5000), ("a", 5000)), {"a": "invalid_request"}),
            (enlarging(("there", 2**31 - 1)), {"there": "policy_violation"}),
            (enlarging(("secret", 5000)), {"secret": "topic_authorization_failed"}),
            (deleting("secret", "absent"), {
                "secret": "topic_authorization_failed", "absent": "unknown_topic_or_partition"
            }),
        ]  # fmt: skip
        for request, expected in free:
            answer = await client.ask(request)
            assert (codes(answer), answer.throttle_time.total_seconds()) == (expected, 0)
        made = await client.ask(creating(("one.a", 11), ("one_a", 5000), ("two", 2)))  # the second collides
        assert codes(made) == {"one.a": "none", "one_a": "invalid_topic_exception", "two": "none"}
        assert made.throttle_time.total_seconds() == 2
        for request, expected in free[1:]:  # an error of the whole request is answered without a time
            client.unmute()
            answer = await client.ask(request)
            assert (codes(answer), answer.throttle_time.total_seconds()) == (expected, 2)
        client.unmute()
        mixed = await client.ask(creating(("secret", 1), ("b", 1), ("there", 1)))
        assert codes(mixed) == {
            "secret": "topic_authorization_failed", "b": "throttling_quota_exceeded", "there": "topic_already_exists"
        }  # fmt: skip
        client.unmute()
        known = server.broker.topics.get("there")
        assert known is not None
        gone = await client.ask(deleting(known.id, "two"))
        assert [(one.name, one.topic_id, one.error_code) for one in gone.responses] == [
            ("there", known.id, ErrorCode.throttling_quota_exceeded),
            ("two", None, ErrorCode.throttling_quota_exceeded),
        ]
        client.unmute()
        assert codes(await client.ask(enlarging(("there", 4)))) == {"there": "throttling_quota_exceeded"}
        assert {topic.name: topic.partitions for topic in server.broker.topics} == {
            "there": 3, "secret": 3, "one.a": 11, "two": 2
        }  # fmt: skip

    with_broker(tmp_path, scenario)


def test_request_time_is_recorded_and_quotas_survive_a_restart(tmp_path: Path) -> None:
    everything = describe.DescribeClientQuotasRequest(components=(), strict=False)

    async def first(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(alteration({"request_percentage": 1e-9}, user=None))
        assert (await client.ask(METADATA)).throttle_time.total_seconds() == 1
        assert client.is_muted
        client.writer.close()
        for _ in range(100):
            await asyncio.sleep(0)
        refused = await (await connect()).ask(alteration({"producer_byte_rate": 1.5}, user="a"))
        assert refused.entries[0].error_code == ErrorCode.invalid_request

    async def second(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        answer = await client.ask(everything)
        assert [(one.entity[0].entity_type, one.entity[0].entity_name, one.values) for one in answer.entries] == [
            ("user", None, (answer.entries[0].values[0],))
        ]
        assert answer.entries[0].values[0].value == 1e-9
        client.unmute()
        component = describe.ComponentData(entity_type="ip", match_type=i8(9), match=None)
        wrong = describe.DescribeClientQuotasRequest(components=(component,), strict=False)
        response = await client.ask(wrong)
        assert (response.error_code, response.error_message) == (ErrorCode.invalid_request, "Unknown match type 9")

    with_broker(tmp_path, first)
    with_broker(tmp_path, second)


def test_quotas_are_described_in_the_order_of_kafka(tmp_path: Path) -> None:
    quotas: dict[str, float | None] = {"request_percentage": 50.0, "producer_byte_rate": 1e9, "consumer_byte_rate": 1e9}

    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        altered = await client.ask(alteration(quotas, user="u", client_id="c"))
        found = await client.ask(describe.DescribeClientQuotasRequest(components=(), strict=False))
        for entry in (*altered.entries, *found.entries):
            assert [(part.entity_type, part.entity_name) for part in entry.entity] == [
                ("client-id", "c"),
                ("user", "u"),
            ]
        assert [value.key for value in found.entries[0].values] == [
            "consumer_byte_rate",
            "request_percentage",
            "producer_byte_rate",
        ]

    with_broker(tmp_path, scenario)


def test_request_that_fails_as_a_whole_is_recorded(tmp_path: Path) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(alteration({"request_percentage": 1e-9}, user=None))
        of_any = i8(1)
        asked = describe_acls.DescribeAclsRequest(
            resource_type_filter=of_any, resource_name_filter=None, pattern_type_filter=of_any,
            principal_filter=None, host_filter=None, operation=of_any, permission_type=of_any,
        )  # fmt: skip
        refused = await client.ask(asked)
        assert refused.error_code == ErrorCode.security_disabled
        assert refused.throttle_time.total_seconds() == 1
        assert client.is_muted

    with_broker(tmp_path, scenario)


def test_connections_beyond_the_quota_are_closed_without_being_served(tmp_path: Path) -> None:
    async def scenario(server: Server, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.ask(alteration({"connection_creation_rate": 1.0}, ip="127.0.0.1"))
        for _ in range(10):
            await connect()
        admission = server.network.quotas
        assert (admission.admitted, admission.refused) == (11, 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.broker.advertised[0].port)
        while not admission.refused:
            await asyncio.sleep(0)
        assert not reader.at_eof(), "it is kept for a while, so that trying again does not pay"
        assert len(admission.open) == 11
        writer.close()
        await client.ask(METADATA)
        await writer.wait_closed()

    with_broker(tmp_path, scenario)


VERSIONS = [(0, version) for version in range(14)] + [(1, version) for version in range(19)] + [
    (3, version) for version in range(14)
]  # fmt: skip


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_throttle_time_is_set_in_responses(key: int, version: int) -> None:
    request = Request(key, version, 1, None, None, ConnectionInfo())
    produced = TopicProduceResponse(name_of(version >= 13), [PartitionProduceResponse(0, 0)])
    answers: dict[int, Callable[[], Any]] = {
        0: lambda: ProduceResponse([produced]),
        1: lambda: FetchResponse(()),
        3: lambda: build_response(request, cluster_id="c", controller_id=1),
    }
    made = with_throttle_time(answers[key](), 4711)
    body = b"".join(bytes(piece) for piece in encode_response(request, made))[4:]
    answer = decode_response(key, version, body)
    has_it = version >= (3 if key == 3 else 1)
    assert ("throttle_time" in answer._fields) == has_it
    assert answer.throttle_time.total_seconds() == (4.711 if has_it else 0)


def name_of(by_id: bool) -> Any:
    from uuid import UUID

    return UUID(int=1) if by_id else "t"


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_size_of_a_produce_request_is_that_of_its_frame(version: int) -> None:
    from importlib import import_module

    module: Any = import_module(f"kio.schema.produce.v{version}.request")
    records = bytes(build_batch([(None, b"x")], 0).data)
    made = module.ProduceRequest(
        transactional_id=None, acks=1, timeout=i32Timedelta.parse(METADATA_TIMEOUT),
        topic_data=(module.TopicProduceData(
            name="orders", partition_data=(module.PartitionProduceData(index=0, records=records),)
        ),),
    )  # fmt: skip
    frame = frame_of(made)
    assert decode_request(frame).size == len(frame)
    assert api_key_map[0] == "produce"
