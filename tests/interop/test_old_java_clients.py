"""Apache's own clients of the releases of the protocol guides, used with the broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.interop.real_kafka import cache_dir, maven_copy

HERE = Path(__file__).parent
COUNT = 600
CODECS = ["none", "gzip", "snappy", "lz4"]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


def run_java(program: str, version: str, artifact: str, *arguments: object) -> list[str]:
    """The lines that a program prints with a client of that version on its class path."""
    libs = cache_dir() / f"{artifact}-{version}"
    maven_copy(libs, [("org.apache.kafka", artifact, version)])
    command = ["java", "-Xmx256m", "-cp", f"{libs}/*", str(HERE / f"{program}.java"), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    return ran.stdout.splitlines()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.0.1"])
def test_old_java_producer_and_consumer_group_work(broker: RunningBroker, version: str, codec: str) -> None:
    topic = f"java-{version}-{codec}"
    broker.create_topic(topic, 2)
    assert run_java("OldClient", version, "kafka-clients", broker.bootstrap, topic, codec, COUNT) == [
        f"produced {COUNT}",
        f"read {COUNT}",
        f"committed {COUNT // 2} {COUNT // 2}",
        f"position {COUNT // 2} {COUNT // 2}",
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_scala_producer_and_simple_consumer_of_0_8_work(broker: RunningBroker, codec: str) -> None:
    topic = f"scala-{codec}"
    broker.create_topic(topic, 1)
    lines = run_java("SimpleConsumer08", "0.8.2.2", "kafka_2.11", broker.host, broker.port, topic, codec, COUNT)
    assert [line for line in lines if line.split()[0] in ("produced", "offsets", "read", "committed")] == [
        f"produced {COUNT}",
        f"offsets 0 {COUNT}",
        f"read {COUNT}",
        "committed 0: 40 error 0",
        "committed 1: 41 error 0",
    ]
