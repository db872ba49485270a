"""Behaviour of a whole broker process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.metadata.v12.request import MetadataRequest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.dynamic_configs import DynamicConfigs
from kafkalog_broker.net.listening_socket import backlog
from kafkalog_broker.net.network import Network
from kafkalog_broker.server import Server
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.kept_port import kept_port
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.storage.helpers.stored_logs import append_records

SECONDS = 30
BACKLOG = "socket.listen.backlog.size"


def alter_broker(broker: RunningBroker, **values: str) -> None:
    changes = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def all_topics() -> MetadataRequest:
    return MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def is_served(broker: RunningBroker) -> bool:
    try:
        broker.ask(all_topics())
    except OSError:
        return False
    return True


def test_network_limits_change_while_the_broker_runs(tmp_path: Path) -> None:
    with running_broker(log_dir=tmp_path / "data") as broker:
        held = [socket.create_connection((broker.host, broker.port)) for _ in range(3)]
        assert is_served(broker)
        alter_broker(broker, max_connections_per_ip_overrides="127.0.0.1:3")
        assert not is_served(broker)
        broker.stop()
        for connection in held:
            connection.close()
        broker.start()
        assert is_served(broker), "the limit is kept, and one connection is below it"


@pytest.mark.kafkalog(properties={"max.connections.per.ip.overrides": ""})
def test_invalid_limit_changes_nothing(kafkalog_broker: RunningBroker) -> None:
    with pytest.raises(KafkaException, match="list of address:number"):
        alter_broker(kafkalog_broker, max_connections_per_ip_overrides="127.0.0.1=3")
    assert is_served(kafkalog_broker)


def test_concurrent_requests_for_an_internal_topic_create_it_once(tmp_path: Path) -> None:
    async def go() -> None:
        properties = {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "default.replication.factor": "3",
        }
        server = await Server.start(BrokerConfig.from_properties(properties))
        try:
            topics = await asyncio.gather(*(server.broker.ensure_topic("internal", 20, {}) for _ in range(3)))
            assert len({topic.id for topic in topics}) == 1
            assert len(server.broker.logs.partitions("internal")) == 20
        finally:
            await server.stop()

    asyncio.run(go())


def test_failed_background_work_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        server = await Server.start(BrokerConfig.from_properties(properties))
        server.broker.logs.tick(server.broker.clock.now_ms())
        server.broker.workers.run_in_background(lambda: 1 // 0)
        await server.stop()

    asyncio.run(go())
    assert "work in the background failed: ZeroDivisionError" in caplog.text


def test_metadata_of_unopened_logs_has_the_leader_epochs_of_their_files(tmp_path: Path) -> None:
    with running_broker(log_dir=tmp_path / "data", topics={"orders": 3}) as broker:
        broker.stop()
        epochs = tmp_path / "data" / "orders-1" / "leader-epoch-checkpoint"
        epochs.write_text("0\n2\n0 0\n7 0\n")
        (tmp_path / "data" / "orders-2" / "leader-epoch-checkpoint").write_text("damaged")
        broker.start()
        told = leader_epochs(broker)
        assert (told[0], told[1]) == (0, 7)
        end = time.monotonic() + 60
        while told[2] is None and time.monotonic() < end:  # without a leader while a thread recovers its log
            time.sleep(0.01)
            told = leader_epochs(broker)
        assert told == {0: 0, 1: 7, 2: 0}


def leader_epochs(broker: RunningBroker) -> dict[int, int | None]:
    """By partition of the only topic; None for one without a leader."""
    [topic] = broker.ask(all_topics()).topics
    return {one.partition_index: None if one.error_code else int(one.leader_epoch) for one in topic.partitions}


# ---- a start that fails


@contextlib.contextmanager
def port_in_use(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", port)):
        yield


@contextlib.contextmanager
def port_taken_while_logs_are_loaded(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    taken: list[socket.socket] = []
    load = LogManager.load

    def load_slowly(self: LogManager, *arguments: object) -> None:
        load(self, *arguments)  # type: ignore[arg-type]
        taken.append(socket.create_server(("127.0.0.1", port)))

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "load", load_slowly)
        yield
    taken.pop().close()


@contextlib.contextmanager
def directory_locked(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    dirs = open_log_dirs([directory], 1, 0)
    yield
    dirs.close()


@contextlib.contextmanager
def loading_fails(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def take_in(*_: object) -> None:
        raise KafkalogError("in the middle of loading")

    with monkeypatch.context() as patched:
        patched.setattr(LogManager, "_register", take_in)
        yield


@contextlib.contextmanager
def serving_fails(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def serve(_: Network) -> None:
        raise KafkalogError("at the very end")

    with monkeypatch.context() as patched:
        patched.setattr(Network, "serve", serve)
        yield


def replaced(name: str, content: bytes) -> Callable[..., contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def damage(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        path = directory / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        yield
        assert path.read_bytes() == content
        path.unlink() if before is None else path.write_bytes(before)

    damage.__name__ = name
    return damage


FAILURES = [
    port_in_use,
    port_taken_while_logs_are_loaded,
    directory_locked,
    loading_fails,
    serving_fails,
    replaced("meta.properties", b"version=1\nnode.id=9\ncluster.id=x\n"),
    replaced("kafkalog.topics.json", b'{"version": 99}'),
    replaced("kafkalog.scram-credentials.json", b"nonsense"),
]


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_failed_start_changes_no_file(
    tmp_path: Path, failure: Callable[..., contextlib.AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    port = kept_port(monkeypatch)
    properties = {
        "log.dirs": str(tmp_path),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.index.size.max.bytes": "1200",
    }
    config = BrokerConfig.from_properties(properties)

    async def go() -> None:
        server = await Server.start(config)
        await server.broker.ensure_topic("orders", 3, {})
        append_records(server.broker.log("orders", 0), [(b"k", b"v")], 1)
        await server.stop()
        assert server.broker.logs.to_recover == []
        before, threads = files_of(tmp_path), threading.active_count()
        assert CLEAN_SHUTDOWN_FILE in before
        with failure(tmp_path, port, monkeypatch):
            before = files_of(tmp_path)
            with pytest.raises(KafkalogError):
                await Server.start(config)
            assert files_of(tmp_path) == before
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert threading.active_count() <= threads + 1  # the loop's own, for looking names up
        caplog.clear()
        with caplog.at_level("INFO"):
            again = await Server.start(config)
        assert f"log directory {tmp_path}: 3 partitions, clean" in caplog.messages
        assert again.broker.log("orders", 0).log_end_offset == 1
        await again.stop()

    asyncio.run(go())


def test_stored_property_that_is_now_invalid_fails_the_start_and_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    DynamicConfigs([tmp_path / "data"], 1).save({"max.connections": "0"}, {})
    with pytest.raises(ConfigError, match=r"Invalid max\.connections 0.*kafkalog\.broker-configs\.json"):
        BrokerInProcess(tmp_path / "data").__enter__()


def test_catch_up_with_a_slow_disk_returns_after_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that moves the clock past retention.ms sees the records gone as soon as `advance` returns."""
    may_flush, flush = threading.Event(), Log.flush

    def flush_slowly(log: Log) -> None:
        assert may_flush.wait(60)
        flush(log)

    with BrokerInProcess(tmp_path / "data", {"log.retention.ms": "86400000"}) as process:
        process.run(process.broker.ensure_topic("orders", 1, {}))
        log = process.broker.log("orders", 0)
        append_records(log, [(b"k", b"v")], process.clock.now_ms())
        monkeypatch.setattr(Log, "flush", flush_slowly)
        process.clock.advance(2 * 86400000)

        async def caught_up() -> None:
            catching_up = asyncio.create_task(process.server.periodic.catch_up())
            done, _ = await asyncio.wait([catching_up], timeout=0.2)
            assert not done, "the flush has not ended"
            may_flush.set()
            await catching_up

        process.run(caught_up())
        assert log.log_start_offset == 1


def test_burst_of_connections_waits_in_the_backlog(tmp_path: Path) -> None:
    """Kafka's backlog of 50 is emptied by a thread that does nothing else. Here a round of the loop may come between,
    and TCP tries again after a second where the backlog is full."""
    burst = min(200, socket.SOMAXCONN)
    with BrokerInProcess(tmp_path / "data") as process, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", process.server.network.listeners[0].port)
        for _ in range(burst):  # the loop does not run, so none is accepted
            stack.enter_context(socket.create_connection(address, timeout=0.9))
        process.run(asyncio.sleep(0))


@pytest.mark.parametrize(
    ("properties", "expected"), [({}, max(socket.SOMAXCONN, 50)), ({BACKLOG: "7"}, 7), ({BACKLOG: "50"}, 50)]
)
def test_configured_backlog_is_used(properties: dict[str, str], expected: int) -> None:
    config = BrokerConfig.from_properties({"log.dirs": "unused", **properties})
    assert backlog(config) == expected


def test_cancelled_start_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_go_on = threading.Event(), threading.Event()
    load = LogManager.load

    def load_slowly(self: LogManager, *arguments: object) -> None:
        began.set()
        assert may_go_on.wait(120)
        load(self, *arguments)  # type: ignore[arg-type]

    async def go() -> None:
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        monkeypatch.setattr(LogManager, "load", load_slowly)
        starting = asyncio.create_task(Server.start(BrokerConfig.from_properties(properties)))
        await asyncio.to_thread(began.wait, 120)
        starting.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert asyncio.all_tasks() == {asyncio.current_task()}
        open_log_dirs([tmp_path], 1, 0).close()  # the lock is free

    asyncio.run(go())


def test_second_stop_is_a_no_op(tmp_path: Path) -> None:
    async def go() -> None:
        properties = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        server = await Server.start(BrokerConfig.from_properties(properties))
        await server.stop()
        await server.stop()

    asyncio.run(go())
