"""A clean stop of a broker process takes at most ten seconds even if its bucket does not respond."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.remote.helpers.tiered_broker import configs, produce, wait_until

pytest.importorskip("obstore")

MOST_S = 10.0
PROPERTIES = {
    "remote.log.storage.system.enable": "true", "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
    "remote.log.manager.task.interval.ms": 50, "log.initial.task.delay.ms": 50,
    "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
    "rsm.config.storage.s3.bucket.name": "tier", "rsm.config.storage.s3.region": "eu-central-1",
    "rsm.config.storage.aws.access.key.id": "key", "rsm.config.storage.aws.secret.access.key": "secret",
    "rsm.config.storage.s3.path.style.access.enabled": "true",
}  # fmt: skip
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def store(answer: bytes | None) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Run a server that sends `answer`, or nothing, to every request; the callable tells if a request has arrived."""
    asked = threading.Event()
    held: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        try:
            while connection.recv(1 << 16):
                asked.set()
                if answer is not None:
                    connection.sendall(answer)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", asked.is_set
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


@pytest.mark.parametrize("answer", [None, UNAVAILABLE], ids=["hangs", "answers 503"])
def test_stop_during_a_copy_to_an_unresponsive_storage_is_clean_within_ten_seconds(
    tmp_path: Path, answer: bytes | None
) -> None:
    with store(answer) as (endpoint, asked):
        properties = {**PROPERTIES, "rsm.config.storage.s3.endpoint.url": endpoint}
        with RunningBroker(tmp_path / "data", properties) as broker:
            broker.create_topic("orders", 1, configs())
            produce(broker.bootstrap, "orders", range(40))
            wait_until(asked, "a segment is copied")
            begin = time.monotonic()
            broker.stop()
            assert time.monotonic() - begin < MOST_S
            assert "stopped cleanly" in broker.log()
            broker.start()
            assert "recover" not in broker.log().rpartition("stopped cleanly")[2]


def test_stop_while_the_storage_refuses_requests_is_clean_within_ten_seconds(tmp_path: Path) -> None:
    properties = {**PROPERTIES, "rsm.config.storage.s3.endpoint.url": "http://127.0.0.1:9"}
    with RunningBroker(tmp_path / "data", properties) as broker:
        broker.create_topic("orders", 1, configs())
        produce(broker.bootstrap, "orders", range(40))
        time.sleep(1)  # a copy has begun, and waits between its tries
        begin = time.monotonic()
        broker.stop()
        assert time.monotonic() - begin < MOST_S
        assert "stopped cleanly" in broker.log()
