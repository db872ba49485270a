"""A directory in turn: Apache Kafka makes it, our broker writes into it and is killed, writes again and stops, then
Apache Kafka loads it, and its consumer returns every record. DumpLogSegments finds nothing to say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from tests.interop import consume
from tests.interop.real_kafka import RealKafka, available, classpath

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUND = 3_000
SETTINGS = {"internal.segment.bytes": 40_000}


def send(bootstrap: str, codec: str, first: int) -> None:
    """ROUND records of a round, from number `first` on, in small batches."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 20,
            "linger.ms": 1,
        }
    )
    for number in range(first, first + ROUND):
        producer.produce(
            f"loaded-{codec}",
            b"value %d" % number,
            b"key",
            timestamp=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)],
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consume.commit(consumer, [TopicPartition("loaded-none", 0, offset)])
    consumer.close()


def dump(files: list[Path], *options: str) -> str:
    command = ["java", "-Xmx512m", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments", *options]
    command += ["--files", ",".join(map(str, files))]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=150)
    return ran.stdout


def test_kafka_continues_in_the_directory_of_our_broker(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "kafka", short_lived=True)
    topics = [f"loaded-{codec}" for codec in CODECS]
    with kafka:
        for topic in topics:
            kafka.create_topic(topic, 1, SETTINGS)
        commit(kafka.bootstrap, 1)
        send(kafka.bootstrap, "none", 0)  # so that ours has to go on in a log, and not only to begin one
    ours = RunningBroker(kafka.data_dir, {"node.id": 1, "log.segment.bytes": 1 << 20})
    ours.start()
    for codec in CODECS[1:]:
        send(ours.bootstrap, codec, 0)
    ours.kill()
    ours.start()
    for codec in CODECS:
        send(ours.bootstrap, codec, ROUND)
    commit(ours.bootstrap, 4321)
    ours.stop()
    before = {path: path.read_bytes() for topic in topics for path in segment_files(kafka.partition_dir(topic))}
    kafka.start()
    try:
        for topic in topics:
            rows = kafka.consume(topic)
            assert [row["offset"] for row in rows] == list(range(2 * ROUND)), topic
            assert [row["value"] for row in rows] == [b"value %d" % n for n in range(2 * ROUND)], topic
            assert [row["headers"] for row in rows] == [[("n", b"%d" % n)] for n in range(2 * ROUND)], topic
            assert [row["timestamp"] for row in rows] == [1_700_000_000_000 + n for n in range(2 * ROUND)], topic
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers"})
        assert reader.committed([TopicPartition("loaded-none", 0)], timeout=120)[0].offset == 4321
        reader.close()
    finally:
        kafka.stop()
    after = {path: path.read_bytes() for path in before}
    assert after == before, "Kafka has changed what it loaded"
    logs = [path for path in before if path.suffix == ".log"]
    assert len(logs) > len(topics)
    told = dump(logs, "--deep-iteration", "--skip-record-metadata")
    assert told.count("isvalid: true") > 5 * len(logs)
    assert "isvalid: false" not in told
    indexes = [path for path in before if path.suffix in (".index", ".timeindex") and path.stat().st_size]
    for check in ("--index-sanity-check", "--verify-index-only"):
        lines = dump(indexes, check).splitlines()
        assert [line for line in lines if not line.startswith("Dumping ") and " passed sanity check." not in line] == []


def segment_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
