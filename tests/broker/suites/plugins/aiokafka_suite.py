"""aiokafka: the fixtures of its conftest, for a broker that runs already instead of one in Docker."""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

VERSION = "4.3.0"  # what its tests choose by


@dataclass
class KafkaServer:
    """The suite's interface to the broker. There are no listeners with TLS or SASL."""

    host: str
    port: int
    ssl_port: int = 1
    sasl_plain_port: int = 1
    sasl_ssl_port: int = 1
    container: None = None

    @property
    def hosts(self) -> list[str]:
        return [f"{self.host}:{self.port}"]


class Security:
    """Stands for the tools that set up ACLs, SCRAM users and Kerberos inside the container."""

    def __getattr__(self, name: str) -> Any:
        if name == "cleanup":
            return lambda: None
        pytest.skip("TLS, SASL and ACLs are not set up")

    def __truediv__(self, name: str) -> Any:
        pytest.skip("TLS, SASL and ACLs are not set up")


@pytest.fixture(scope="session")
def kafka_server() -> KafkaServer:
    host, _, port = os.environ["KAFKALOG_BOOTSTRAP"].rpartition(":")
    return KafkaServer(host, int(port))


@pytest.fixture(scope="session")
def session_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop, kafka_server: KafkaServer
) -> None:
    test = request.cls
    test.loop = loop
    test.kafka_host, test.kafka_port, test.hosts = kafka_server.host, kafka_server.port, kafka_server.hosts
    test.kafka_ssl_port = kafka_server.ssl_port
    test.kafka_sasl_plain_port = kafka_server.sasl_plain_port
    test.kafka_sasl_ssl_port = kafka_server.sasl_ssl_port
    test.ssl_folder = Security()
    test.acl_manager = test.kerberos_utils = test.kafka_config = Security()
    test.kafka_version = VERSION
