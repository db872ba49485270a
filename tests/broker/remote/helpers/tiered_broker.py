"""A broker with remote storage and short task intervals, and the files in its remote folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.testing import RunningBroker
from tests.store.s3_server import S3Server

LOCAL_TIERED = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
SMALL = {
    "remote.storage.enable": "true", "internal.segment.bytes": 16_384, "local.retention.bytes": 1,
    "file.delete.delay.ms": 100, "index.interval.bytes": 1024, "retention.ms": -1,
}  # fmt: skip
"""Topics with segments of 15 records of 1 kB, which leave the disk when they were copied."""


def tiered_properties(remote: Path, **others: object) -> dict[str, object]:
    """Of a broker that copies into a folder, which is created, as LocalTieredStorage lays it out."""
    remote.mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": LOCAL_TIERED,
        "rsm.config.dir": remote,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "remote.log.manager.task.interval.ms": 50,
        "remote.log.manager.task.retry.backoff.ms": 50,
        "log.retention.check.interval.ms": 50,
        "log.initial.task.delay.ms": 50,
        **{name.replace("_", "."): value for name, value in others.items()},
    }


def s3_properties(server: S3Server, endpoint: str | None = None, bucket: str = "tier") -> dict[str, object]:
    """Of a broker that copies into a bucket of that server, or of a proxy before it at `endpoint`."""
    return {
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "rsm.config.storage.s3.bucket.name": bucket, "rsm.config.storage.s3.region": server.region,
        "rsm.config.storage.s3.endpoint.url": endpoint or server.endpoint,
        "rsm.config.storage.s3.path.style.access.enabled": "true",
        "rsm.config.storage.aws.access.key.id": server.access_key,
        "rsm.config.storage.aws.secret.access.key": server.secret_key,
    }  # fmt: skip


def remote_logs(remote: Path, topic: str, partition: int = 0) -> list[Path]:
    """Return the remote .log files of a partition by name, of all topics that had this name."""
    return sorted((remote / "kafka-tiered-storage").glob(f"{topic}-{partition}-*/*.log"))


def local_logs(broker: RunningBroker, topic: str, partition: int = 0) -> list[Path]:
    return sorted((Path(broker.log_dir) / f"{topic}-{partition}").glob("*.log"))


def wait_until(condition: Callable[[], bool], message: str, seconds: float = 60) -> None:
    """Wait until the condition holds; raise AssertionError with `message` after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.02)


def produce(bootstrap: str, topic: str, numbers: range, **settings: Any) -> None:
    """Send records of 1 kB, each in its own batch, with their numbers as timestamps."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for number in numbers:
        producer.produce(topic, b"%01000d" % number, partition=0, timestamp=1_700_000_000_000 + 1000 * number)
        assert producer.flush(30) == 0


def consumed(
    bootstrap: str, topic: str, begin: int, end: int, *, patient: bool = False, **settings: Any
) -> list[tuple[int, bytes]]:
    """(offset, value) of partition 0 from an offset on, up to `end`, as librdkafka has them. patient: errors pass, as
    those of a Kafka that does not know its remote segments yet."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error", "enable.auto.commit": False,
        **settings,
    })  # fmt: skip
    found: list[tuple[int, bytes]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, begin)])
        until = time.monotonic() + 60
        while time.monotonic() < until and (not found or found[-1][0] < end - 1):
            message = consumer.poll(0.2)
            if message is not None and not (patient and message.error()):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def wait_until_copied(broker: RunningBroker, remote: Path, topic: str, local_left: int = 1) -> None:
    """Wait until all segments but the active one are remote and `local_left` are local."""
    wait_until(lambda: len(local_logs(broker, topic)) == local_left, f"{topic} is copied: {broker.log()[-3000:]}")


def configs(**others: object) -> Mapping[str, object]:
    return SMALL | {name.replace("_", "."): value for name, value in others.items()}
