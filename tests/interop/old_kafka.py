"""A real Apache Kafka 2.8.2 with its ZooKeeper on loopback: without KRaft, and without topic ids in Fetch."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.interop.real_kafka import QUICK_JAVA, cache_dir, end_with_parent, free_ports, maven_copy

VERSION = "2.8.2"
START_S = 180


class OldKafka:
    """One node; its files are in `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.data_dir = home / "data"
        self._port, self._zookeeper = free_ports(self)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Self:
        jars = cache_dir() / VERSION
        maven_copy(jars, [("org.apache.kafka", "kafka_2.13", VERSION), ("org.slf4j", "slf4j-nop", "1.7.30")])
        self._home.mkdir(parents=True, exist_ok=True)
        keeper = {
            "dataDir": self._home / "zookeeper", "clientPort": self._zookeeper, "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }  # fmt: skip
        broker = {
            "broker.id": 1, "listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": self.data_dir,
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper}", "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1, "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 1, "log.retention.ms": -1,
            "group.initial.rebalance.delay.ms": 0, "log.index.size.max.bytes": 1 << 20,
        }  # fmt: skip
        try:
            self._run(jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper", keeper, self._zookeeper)
            self._run(jars, "kafka.Kafka", "server", broker, self._port)
            self._await_controller()
        except BaseException:
            self.kill()
            raise
        return self

    def _run(self, jars: Path, main: str, name: str, settings: dict[str, object], port: int) -> None:
        config = self._home / f"{name}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with (self._home / f"{name}.log").open("wb") as out:
            process = subprocess.Popen(
                ["java", "-Xmx512m", *QUICK_JAVA, "-cp", f"{jars}/*", main, str(config)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        self._processes.append(process)
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{main} does not serve: {(self._home / f'{name}.log').read_text()[-2000:]}")
            time.sleep(0.1)

    def _await_controller(self) -> None:
        """Block until Metadata names a controller: librdkafka looks only once, and its admin requests wait for one."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
                if admin.list_topics(timeout=5).controller_id >= 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"no controller within {START_S} s: {(self._home / 'server.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill Kafka and ZooKeeper."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
