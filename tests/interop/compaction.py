"""Partitions before and after compaction by a real Kafka, with which our cleaner is compared.

For people: `python -m tests.interop.compaction FILE.tar.xz` records what the default tests use.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.interop.real_kafka import RealKafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN = tuple(f"compacted-{codec}" for codec in CODECS)
APPEND_TIME = "compacted-append-time"
TRANSACTIONS = "compacted-transactions"
MERGED = "compacted-merged"
TOPICS = (*PLAIN, APPEND_TIME, TRANSACTIONS, MERGED)
SEGMENT_BYTES = {**dict.fromkeys(TOPICS, 3_000), MERGED: 6_000}
TURNS = (1, 2, 3)
DELETE_RETENTION_MS = 1_000
WAIT_SECONDS = 180

_SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": 300,
    "delete.retention.ms": DELETE_RETENTION_MS,
    "min.cleanable.dirty.ratio": 1.0,  # no log is dirtier than that: nothing is compacted yet
}
_CLEANING = {"log.cleaner.backoff.ms": 100}


def produce(bootstrap: str, seed: int, records: int = 400) -> None:
    """Keys again and again, tombstones, headers, keys that are written once; small batches. Deterministic but for the
    cutting into batches."""
    chance = random.Random(seed)
    for topic in (*PLAIN, APPEND_TIME, MERGED):
        codec = topic.removeprefix("compacted-")
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec if codec in CODECS else "none",
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "linger.ms": 5,
            }
        )
        for number in range(records):
            key = b"once-%d-%d" % (seed, number) if chance.random() < 0.1 else b"key-%d" % chance.randrange(20)
            value = None if chance.random() < 0.15 else b"value %d " % number * chance.randrange(1, 4)
            headers = [("h", b"%d" % number), ("n", None)] if chance.random() < 0.2 else None
            stamp = {} if topic == APPEND_TIME else {"timestamp": 1_700_000_000_000 + 1000 * number}
            producer.produce(topic, value, key, headers=headers, **stamp)
            if number % 5 == 4:
                producer.flush(120)
        assert producer.flush(120) == 0
    _transactions(bootstrap, chance, seed)


def _transactions(bootstrap: str, chance: random.Random, seed: int) -> None:
    """Two transactional producers in turn, every third transaction aborted."""
    producers = []
    for name in ("one", "two"):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{seed}", "batch.num.messages": 5}
        )
        producer.init_transactions(30)
        producers.append(producer)
    for number in range(40):
        producer = producers[number % 2]
        producer.begin_transaction()
        for _ in range(chance.randrange(1, 7)):
            value = None if chance.random() < 0.15 else b"transaction %d" % number
            producer.produce(TRANSACTIONS, value, b"key-%d" % chance.randrange(10))
        producer.flush(120)
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def set_config(bootstrap: str, topic: str, values: dict[str, object]) -> None:
    """Change a topic's configuration."""
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(120)


def active_base(directory: Path) -> int:
    """The base offset of the newest segment."""
    return max(int(path.stem) for path in directory.glob("*.log"))


def cleaned_to(data_dir: Path) -> dict[str, int]:
    """Return the offset in cleaner-offset-checkpoint of partition 0 of each topic."""
    path = data_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines}


def compact(kafka: RealKafka) -> None:
    """Start a stopped Kafka, wait until it has compacted all topics, and stop it again."""
    kafka.start(_CLEANING)
    for topic in TOPICS:
        set_config(kafka.bootstrap, topic, {"min.cleanable.dirty.ratio": 0.01})
    end = time.monotonic() + WAIT_SECONDS
    while any(cleaned_to(kafka.data_dir).get(topic, 0) < active_base(kafka.partition_dir(topic)) for topic in TOPICS):
        assert time.monotonic() < end, (cleaned_to(kafka.data_dir), kafka.server_log()[-2000:])
        time.sleep(0.1)
    for topic in TOPICS:
        set_config(kafka.bootstrap, topic, {"min.cleanable.dirty.ratio": 1.0})
    kafka.stop()


def saved(kafka: RealKafka, target: Path) -> None:
    """Copy the partitions and checkpoints of a stopped Kafka with their modification times."""
    target.mkdir(parents=True)
    for topic in TOPICS:
        ignored = shutil.ignore_patterns("*.deleted")
        shutil.copytree(kafka.partition_dir(topic), target / f"{topic}-0", ignore=ignored)
    for path in kafka.data_dir.glob("*-checkpoint"):
        shutil.copy2(path, target / path.name)


def record(work: Path, target: Path, records: int = 300) -> None:
    """Copies of the partitions, `before-N` and `after-N` Kafka compacted them for the N-th time. Tombstones and markers
    of one time are due at the next."""
    kafka = RealKafka(work, short_lived=True)
    kafka.start()
    for topic in TOPICS:
        settings = {**_SETTINGS, "internal.segment.bytes": SEGMENT_BYTES[topic]}
        if topic == APPEND_TIME:
            settings["message.timestamp.type"] = "LogAppendTime"
        kafka.create_topic(topic, 1, settings)
    for turn in TURNS:
        produce(kafka.bootstrap, turn, records if turn == 1 else records // 2)
        kafka.stop()
        saved(kafka, target / f"before-{turn}")
        compact(kafka)
        saved(kafka, target / f"after-{turn}")
        if turn != TURNS[-1]:
            time.sleep(DELETE_RETENTION_MS / 1000 + 0.5)
            kafka.start()


def main() -> int:
    with tempfile.TemporaryDirectory() as work:
        record(Path(work) / "kafka", Path(work) / "recorded")
        shutil.make_archive(sys.argv[1].removesuffix(".tar.xz"), "xztar", Path(work) / "recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
