"""A real Kafka and our broker with the same properties: a listener without SASL and one with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafkalog_broker.testing import RunningBroker
from tests.interop.real_kafka import RealKafka

Ports = tuple[int, int]
"""Of PLAINTEXT and of SASL_PLAINTEXT."""


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def sasl_kafka(
    directory: str | Path, security: Mapping[str, str], *java_options: str
) -> Iterator[tuple[RealKafka, Ports]]:
    """A real Kafka with these properties, for one test."""
    made = RealKafka(directory, security, short_lived=True, java_options=java_options, secured="SASL_PLAINTEXT")
    with made as running:
        yield running, (int(running.bootstrap.rpartition(":")[2]), running.secured_port)


@contextmanager
def sasl_broker(log_dir: Path, security: Mapping[str, str]) -> Iterator[Ports]:
    """Our broker with these properties."""
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with RunningBroker(log_dir, {**security, **listeners}) as broker:
        yield broker.ports["PLAINTEXT"], broker.ports["SASL_PLAINTEXT"]
