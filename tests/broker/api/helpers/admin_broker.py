"""A broker for admin requests: real topics, logs and configuration, without network and coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

from kafkalog_broker import api
from kafkalog_broker.broker import Broker
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, DynamicConfigs
from kafkalog_broker.config.listeners import Listener
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.security.tls import Tls
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.telemetry.client_instances import ClientInstances
from tests.broker.api.helpers.admin_scenario import describe
from tests.broker.api.helpers.plain_entities import TOKENS, request_entity
from tests.broker.manual_clock import ManualClock
from tests.broker.protocol.helpers.kio_messages import read_response

PROPERTIES = {
    # As tests.interop.real_kafka starts Kafka: retention.ms has a source there.
    "log.retention.ms": "-1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}


class Groups:
    """Group coordinator that records which topics were deleted."""

    def __init__(self) -> None:
        self.deleted_topics: list[str] = []

    def on_topics_deleted(self, topics: Collection[str], topic_ids: object = ()) -> Iterator[None]:
        self.deleted_topics += topics
        yield


class NoShareGroups:
    """Share coordinator and share partitions without any share group."""

    def drop_topics(self, topics: object) -> None: ...

    def on_topics_deleted(self, topics: object) -> Iterator[None]:
        return iter(())


class AdminBroker:
    """Context manager. `ask` runs a handler and returns the response as decoded from its bytes."""

    def __init__(self, *directories: Path, **properties: str) -> None:
        self.config = BrokerConfig.from_properties(
            {**PROPERTIES, "log.dirs": [str(path) for path in directories], **properties}
        )
        self.clock = ManualClock()
        self._loop = asyncio.new_event_loop()
        self.node_id = self.config.node_id
        self.cluster_id = "a cluster"
        self.remote = None
        self.internal_topic_lock, self.alteration_lock = asyncio.Lock(), asyncio.Lock()
        self.directory_renames: dict[str, asyncio.Event] = {}
        self.config_descriptions: tuple[BrokerConfig, dict[Any, bytes]] = (self.config, {})
        self.advertised = (Listener("PLAINTEXT", "127.0.0.1", 9092),)
        self.telemetry = ClientInstances(
            self.clock.now_ms, self.config.telemetry_max_bytes, lambda: self.dynamic_configs.resources[CLIENT_METRICS]
        )
        self.connection = ConnectionInfo()
        self.groups = Groups()
        self.share_partitions = self.share_coordinator = NoShareGroups()
        self._dirs = open_log_dirs(self.config.log_dirs, self.node_id, self.clock.now_ms())
        self.dynamic_configs = DynamicConfigs(directories, self.node_id)
        self.tls = Tls()
        self.dynamic_configs.load()
        self.topics = TopicRegistry(self._dirs.all)
        self.topics.load()
        self.logs = LogManager(self._dirs, self.config, self.topics, self.clock)
        self.logs.load()

    def __enter__(self) -> AdminBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.logs.shutdown()
        self._dirs.close()
        self._loop.close()

    def check_not_mirrored(self, what: str) -> None:
        """Accept every change: this broker does not mirror another cluster."""

    save = Broker.save

    async def run_blocking(self, function: Any, *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    async def run_computing(self, function: Any, *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    def updating_config(self, config: BrokerConfig) -> Generator[None, None, None]:
        self.config = config
        yield from self.logs.updating_config(config)

    def log(self, topic: str, partition: int) -> Any:
        log = self.logs.get(topic, partition)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{partition}")
        return log

    def ask(self, entity: Any) -> Any:
        """Return the response to a request entity, encoded and decoded again."""
        key, version = int(entity.__api_key__), int(entity.__version__)
        found = api.load_all()[key]
        request = Request(key, version, 1, "tests", entity, self.connection)
        try:
            answer = self._loop.run_until_complete(found.respond(request, self))  # type: ignore[arg-type]
        except BrokerError as error:
            if found.on_error is None:
                raise
            answer = found.on_error(request, error.code)
            if isawaitable(answer):
                answer = self._loop.run_until_complete(answer)
        return _decoded(request, answer)


def send(broker: AdminBroker, step: tuple[int, Any, dict[str, Any]], version: int | None = None) -> Any:
    """Return the response to a step of the admin scenario, by default in the last of its versions."""
    key, versions, values = step
    return broker.ask(request_entity(key, versions[-1] if version is None else version, values, {}))


def only_result(response: Any) -> Any:
    results = getattr(response, "results", None) or getattr(response, "responses", None) or response.topics
    assert len(results) == 1
    return results[0]


def described_value(broker: AdminBroker, resource_type: int, name: str, key: str) -> Any:
    """Return the value of a property, or None if the resource does not have it."""
    result = only_result(send(broker, describe((resource_type, name, [key]))))
    return result.configs[0].value if result.configs else None


def _decoded(request: Request, answer: Any) -> Any:
    if request.api_key in TOKENS:
        return b"".join(encode_response(request, answer))[8:].hex()
    frame = b"".join(bytes(piece) for piece in encode_response(request, answer))[4:]
    return read_response(request.api_key, request.version, frame)
