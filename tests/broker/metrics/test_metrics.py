"""Metrics of a broker that is scraped over HTTP; the text is read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta, i64
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkalog_broker.admin.topic_creation import ensure_topic
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.metrics import http_server, metric_table
from kafkalog_broker.metrics.http_server import MAX_READING, MAX_SCRAPES, MetricsServer
from kafkalog_broker.metrics.metric_table import METRICS
from kafkalog_broker.metrics.request_counts import RequestCounts, counting_dispatch
from kafkalog_broker.metrics.samples import Samples
from kafkalog_broker.net.dispatch import response_of
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.runtime.traffic import MAX_ENTRIES, Traffic
from kafkalog_broker.server import Options, Server
from kafkalog_broker.startup.credentials import load_credentials
from kafkalog_broker.testing_support.client_requests import frame_of
from kafkalog_broker.testing_support.kept_port import kept_port
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.write.encoded_batch import build_batch

ROOT = Path(__file__).parents[3]
Found = dict[tuple[str, tuple[str, ...]], float]
OF_REMOTE_STORAGE = {name for name in METRICS if name.startswith("kafkalog_remote_")}
"""Only of brokers with remote storage."""


def port_of(server: Server) -> int:
    assert server.metrics_address is not None
    return server.metrics_address[1]


async def get(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    return await raw(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def raw(port: int, sent: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]) if head.startswith(b"HTTP/") else 0, body


def parsed(text: bytes) -> Found:
    found: Found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(value for _, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


async def ask(writer: asyncio.StreamWriter, reader: asyncio.StreamReader, frame: bytes) -> bytes:
    writer.write(struct.pack(">i", len(frame)) + frame)
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def produce_frame(topic: str, records: bytes) -> bytes:
    """Produce 3: no transactional id, acks 1, one partition."""
    name = topic.encode()
    return (
        struct.pack(">hhih", 0, 3, 1, -1)
        + struct.pack(">hhi", -1, 1, 1000)
        + struct.pack(">ih", 1, len(name)) + name
        + struct.pack(">iii", 1, 0, len(records)) + records
    )  # fmt: skip


def fetch_frame(topic: str) -> bytes:
    """Fetch 4 from offset 0."""
    name = topic.encode()
    return (
        struct.pack(">hhih", 1, 4, 2, -1)
        + struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
        + struct.pack(">ih", 1, len(name)) + name
        + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    )  # fmt: skip


def commit(group: str, topic: str, offset: int) -> Any:
    return OffsetCommitRequest(
        group_id=GroupId(group), generation_id_or_member_epoch=i32(-1), member_id="", group_instance_id=None,
        topics=(OffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=(OffsetCommitRequestPartition(
                partition_index=i32(0), committed_offset=i64(offset), committed_leader_epoch=i32(-1),
                committed_metadata=None,
            ),),
        ),),
    )  # fmt: skip


METRICS_AT = Options(metrics=("127.0.0.1", 0))


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    properties = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "log.flush.interval.messages": 1,
    }
    return BrokerConfig.from_properties(properties)


def test_scrape_shows_requests_storage_and_groups(config: BrokerConfig) -> None:
    batch = bytes(build_batch([(None, b"v" * 50)] * 7, SystemClock().now_ms()).data)

    async def go() -> tuple[Found, Found]:
        server = await Server.start(config, METRICS_AT)
        try:
            await server.broker.lifecycle.coordinators_loaded.wait()
            await ensure_topic(server.broker, "orders", 2, {})
            reader, writer = await asyncio.open_connection("127.0.0.1", server.broker.advertised[0].port)
            for _ in range(3):
                await ask(writer, reader, produce_frame("orders", batch))
            await ask(writer, reader, produce_frame("nowhere", batch))
            fetched = await ask(writer, reader, fetch_frame("orders"))
            assert batch[61:] in fetched
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))  # type: ignore[arg-type]
            await ask(writer, reader, frame_of(find))
            await ask(writer, reader, frame_of(commit("g", "orders", 5)))
            begin = InitProducerIdRequest(
                transactional_id=TransactionalId("t"), transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)),
                producer_id=ProducerId(-1), producer_epoch=i16(-1),
            )  # fmt: skip
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=("t",))  # type: ignore[arg-type]
            await ask(writer, reader, frame_of(find))
            await ask(writer, reader, frame_of(begin))
            unknown = MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
            await ask(writer, reader, frame_of(unknown))
            status, first = await get(port_of(server), "/metrics")
            assert status == 200
            writer.write(struct.pack(">ihhi", 8, 99, 0, 1))  # no such API
            assert await reader.read() == b""
            writer.close()
            _, second = await get(port_of(server), "/metrics?again")
            return parsed(first), parsed(second)
        finally:
            await server.stop()

    found, later = asyncio.run(go())
    size = len(batch)
    assert found["kafkalog_request_seconds_count", ("Produce",)] == 4
    assert found["kafkalog_request_seconds_bucket", ("Produce", "+Inf")] == 4
    assert found["kafkalog_request_bytes_total", ("Produce",)] == 3 * len(produce_frame("orders", batch)) + len(
        produce_frame("nowhere", batch)
    )
    assert found["kafkalog_response_bytes_total", ("Fetch",)] > 3 * size
    assert found["kafkalog_errors_total", ("Produce", "unknown_topic_or_partition")] == 1
    assert found["kafkalog_topic_bytes_in_total", ("orders",)] == 3 * size
    assert found["kafkalog_topic_records_in_total", ("orders",)] == 21
    assert found["kafkalog_topic_bytes_out_total", ("orders",)] == 3 * size
    assert found["kafkalog_topic_log_size_bytes", ("orders",)] == 3 * size
    assert found["kafkalog_topic_partitions", ("orders",)] == 2
    assert found["kafkalog_topic_segments", ("orders",)] == 2
    assert found["kafkalog_topic_flushes_total", ("orders",)] == 3
    assert found["kafkalog_topic_unflushed_records", ("orders",)] == 0
    assert found["kafkalog_group_lag", ("g", "orders")] == 16
    assert found["kafkalog_groups", ("Empty",)] == 1
    assert found["kafkalog_transactions", ("Empty",)] == 1
    assert found["kafkalog_connections", ("PLAINTEXT",)] == 1
    assert found["kafkalog_partitions", ()] == 4
    assert found["kafkalog_ready", ()] == 1
    assert later["kafkalog_connections", ("PLAINTEXT",)] == 0
    assert later["kafkalog_requests_closed_total", ("unknown",)] == 1
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in later}
    seen_only_where_it_happens = {"kafkalog_event_loop_longest_hold_seconds", "kafkalog_client_metric"}
    assert METRICS.keys() - names <= seen_only_where_it_happens | OF_REMOTE_STORAGE
    assert names <= METRICS.keys()


def test_readyz_is_200_only_while_the_broker_serves(config: BrokerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[tuple[int, bytes]]:
        seen: list[tuple[int, bytes]] = []
        port = kept_port(monkeypatch)

        async def look_then_load(*arguments: Any) -> Any:
            seen.append(await get(port, "/readyz"))
            seen.append(await get(port, "/healthz"))
            status, text = await get(port, "/metrics")
            found = parsed(text)
            assert (status, found["kafkalog_ready", ()], found["kafkalog_connections", ("PLAINTEXT",)]) == (200, 0, 0)
            return await load_credentials(*arguments)

        monkeypatch.setattr("kafkalog_broker.server.load_credentials", look_then_load)
        server = await Server.start(config, Options(metrics=("127.0.0.1", port)))
        await server.broker.lifecycle.coordinators_loaded.wait()
        seen.append(await get(port_of(server), "/readyz"))
        server.broker.lifecycle.failed.set()
        seen.append(await get(port_of(server), "/readyz"))
        await server.stop()
        return seen

    starting, healthy, serving, failed = asyncio.run(go())
    assert starting == (503, b"not ready: the broker is starting or stopping\n")
    assert healthy == (200, b"ok\n")
    assert serving == (200, b"ready\n")
    assert failed == (503, b"not ready: all log directories have failed\n")


async def one_sample() -> Samples:
    samples = Samples()
    samples.add("kafkalog_ready", 1)
    return samples


@asynccontextmanager
async def page(collect: Callable[[], Awaitable[Samples]] = one_sample) -> AsyncIterator[MetricsServer]:
    http = MetricsServer(collect, lambda: None)
    await http.start("127.0.0.1", 0)
    try:
        yield http
    finally:
        http.close()
        while http._connections:
            await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_malformed_request_gets_an_error_or_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    async def go() -> list[tuple[int, bytes]]:
        async with page() as http:
            with pytest.raises(KafkalogError, match="--metrics cannot be bound to"):
                await MetricsServer(one_sample, lambda: None).start("127.0.0.1", http.port)
            return [
                await get(http.port, "/metrics"),
                await get(http.port, "/metrics", "HEAD"),
                await get(http.port, "/metrics", "POST"),
                await get(http.port, "/"),
                await raw(http.port, b"\x00\x00\r\n\r\n"),
                await raw(http.port, b"GET / HTTP/1.1\r\n" + b"x" * http_server.MAX_HEADERS_BYTES),
            ]

    found = asyncio.run(go())
    assert found[0] == (
        200,
        b"# HELP kafkalog_ready 1 while /readyz responds 200\n# TYPE kafkalog_ready gauge\nkafkalog_ready 1.0\n",
    )
    assert found[1] == (200, b"")
    assert [status for status, _ in found[2:]] == [405, 404, 0, 431]
    assert capfd.readouterr() == ("", "")


def test_scraper_that_does_not_read_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_server, "SEND_TIMEOUT_S", 0.1)

    async def large() -> Samples:
        samples = Samples()
        samples.add("kafkalog_log_dir_online", 1, "x" * (16 << 20))  # more than the sockets of both sides hold
        return samples

    async def go() -> None:
        async with page(large) as http:
            stuck, end = await asyncio.open_connection("127.0.0.1", http.port, limit=1024)
            end.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await stuck.readexactly(100)
            await until(lambda: not http._connections)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await stuck.readexactly(16 << 20)
            end.close()

    asyncio.run(go())
    assert capfd.readouterr() == ("", "")


def test_request_that_arrives_byte_by_byte_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_TIMEOUT_S", 0.2)

    async def go() -> None:
        async with page() as http:
            reader, writer = await asyncio.open_connection("127.0.0.1", http.port)

            async def drip() -> None:
                while True:  # never longer without a byte than a quarter of the deadline
                    writer.write(b"G")
                    await asyncio.sleep(http_server.HEADERS_TIMEOUT_S / 4)

            dripping = asyncio.create_task(drip())
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            dripping.cancel()
            writer.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_probe_is_answered_while_silent_connections_take_all_slots() -> None:
    async def go() -> None:
        async with page() as http:
            silent = [await asyncio.open_connection("127.0.0.1", http.port) for _ in range(MAX_READING)]
            await until(lambda: len(http.reading) == MAX_READING)
            assert await get(http.port, "/healthz") == (200, b"ok\n")
            assert await get(http.port, "/readyz") == (200, b"ready\n")
            assert await silent[0][0].read() == b"", "the oldest made room"
            assert len(http.reading) == MAX_READING - 1
            for _, writer in silent:
                writer.close()

    asyncio.run(go())


def test_scrapes_beyond_the_limit_are_refused() -> None:
    async def go() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def collect() -> Samples:
            begun.set()
            await may_end.wait()
            return await one_sample()

        async with page(collect) as http:
            scrapes = [asyncio.create_task(get(http.port, "/metrics")) for _ in range(MAX_SCRAPES)]
            await until(lambda: http._scrapes == MAX_SCRAPES)
            assert (await get(http.port, "/metrics"))[0] == 503
            assert (await get(http.port, "/healthz"))[0] == 200
            may_end.set()
            assert [status for status, _ in await asyncio.gather(*scrapes)] == [200] * MAX_SCRAPES

    asyncio.run(go())


def test_text_has_one_help_line_for_each_metric() -> None:
    samples = Samples()
    for number in range(201):
        samples.add("kafkalog_topic_partitions", number, f"t{number}")
    samples.add("kafkalog_log_dir_online", 1, 'a "b"\\\n')
    samples.add_histogram("kafkalog_request_seconds", [1] * 15, 2.5, "Produce")
    text = generate_latest(samples)  # type: ignore[arg-type]
    assert text.count(b"# HELP kafkalog_topic_partitions ") == 1
    assert text.count(b"# HELP") == 3
    found = parsed(text)
    assert found["kafkalog_topic_partitions", ("t200",)] == 200
    assert found["kafkalog_log_dir_online", ('a "b"\\\n',)] == 1
    assert found["kafkalog_request_seconds_bucket", ("Produce", "0.001")] == 2
    assert found["kafkalog_request_seconds_bucket", ("Produce", "+Inf")] == 15
    assert found["kafkalog_request_seconds_count", ("Produce",)] == 15
    assert found["kafkalog_request_seconds_sum", ("Produce",)] == 2.5
    with pytest.raises(KeyError):
        samples.add("kafkalog_no_such_metric", 1)


@pytest.mark.parametrize("frame", [b"\0\0" + bytes(98), memoryview(bytearray(b"\0\0" + bytes(98)))])
@pytest.mark.parametrize("waits", [False, True])
def test_requests_are_counted_for_all_kinds_of_frames_and_responses(frame: bytes | memoryview, waits: bool) -> None:
    """A large frame is a view of memory that may be written."""

    async def later() -> list[bytes]:
        await asyncio.sleep(0)
        return [b"12", b"345"]

    def serve(frame: bytes | memoryview, connection: ConnectionInfo) -> Any:
        return later() if waits else [b"12", b"345"]

    counts = RequestCounts()
    count = counting_dispatch(serve, counts)

    async def go() -> None:
        for _ in range(3):
            assert await response_of(count(frame, ConnectionInfo())) == [b"12", b"345"]

    asyncio.run(go())
    found = counts.by_api["Produce"]
    assert (sum(found.buckets), found.request_bytes, found.response_bytes) == (3, 300, 15)


def test_unknown_api_keys_share_one_counter() -> None:
    counts = RequestCounts()
    for key in range(200, 300):
        counts.of(key.to_bytes(2, "big")).request_bytes += 1
    assert list(counts.by_api) == ["unknown"]


def test_errors_are_counted_by_entry_up_to_a_bound() -> None:
    def result(code: Any) -> Any:
        return DeletableTopicResult(name=TopicName("t"), topic_id=None, error_code=code, error_message=None)

    traffic = Traffic()
    results = (
        result(ErrorCode.none),
        result(ErrorCode.invalid_request),
        *[result(ErrorCode.topic_authorization_failed)] * MAX_ENTRIES,
    )
    traffic.count_errors(20, DeleteTopicsResponse(throttle_time=i32Timedelta.parse(timedelta()), responses=results))
    assert set(traffic.errors) <= {(20, ErrorCode.topic_authorization_failed), (20, ErrorCode.invalid_request)}
    assert MAX_ENTRIES - 3 <= sum(traffic.errors.values()) <= MAX_ENTRIES
    traffic.bytes_out["gone"] = 1
    traffic.keep_topics({"t"})
    assert not traffic.bytes_out


def test_metrics_page_equals_the_metric_table() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", page, re.MULTILINE)
    said = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert len(said) > 10
    assert said == [(one.name, one.kind, one.labels, one.meaning) for one in (METRICS[row[0]] for row in said)]
    assert set(re.findall(r"`(kafkalog_\w+)`", page)) <= set(METRICS)
    for bound in (metric_table.MAX_TOPICS, metric_table.MAX_GROUPS, metric_table.MAX_GROUP_TOPICS):
        assert f"{bound:,}" in page


def test_dashboard_uses_existing_metrics_and_labels() -> None:
    board = json.loads((ROOT / "examples" / "grafana_dashboard.json").read_text(encoding="utf-8"))
    shown = [target for panel in board["panels"] for target in panel["targets"]]
    used = set()
    for target in shown:
        names = re.findall(r"kafkalog_\w+", target["expr"])
        assert names, target
        metrics = [METRICS.get(name) or METRICS[re.sub(r"_(bucket|sum|count)$", "", name)] for name in names]
        used |= {metric.name for metric in metrics}
        labels = {label for metric in metrics for label in metric.labels} | {"instance", "le"}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target
        for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
            assert {one.strip() for one in group.split(",")} <= labels, target
    left_out = {"build_info", "client_metric", "quotas", "topics", "topics_left_out", "groups_left_out",
                "topic_partitions", "queued_request_bytes", "fetch_sessions", "cleaner_runs_total",
                "cleaner_seconds_total"}  # fmt: skip
    assert METRICS.keys() - used == {f"kafkalog_{name}" for name in left_out}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
