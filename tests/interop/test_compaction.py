"""Our cleaner beside Kafka's: the same partitions give the same segments; and a Kafka loads what ours leaves, finished
or killed at any step of a swap."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka import Producer

from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from tests.broker.storage.helpers.cleaned_logs import Host, request
from tests.broker.storage.helpers.kafka_compaction import compacted, compare
from tests.broker.storage.helpers.stored_logs import NOW, log_config
from tests.interop.compaction import SEGMENT_BYTES, TOPICS, TURNS, record
from tests.interop.real_kafka import RealKafka, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

STEPS = 15  # renames of a swap of three segments into one: 3 to .swap, 9 to .deleted, 3 to their names
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 20_000,
    "min.cleanable.dirty.ratio": 1.0,
}


def test_compacted_segments_equal_those_of_kafka(tmp_path: Path) -> None:
    record(tmp_path / "kafka", tmp_path)
    for turn in TURNS:
        for topic in TOPICS:
            before, after = tmp_path / f"before-{turn}", tmp_path / f"after-{turn}"
            log = compacted(topic, before, after, tmp_path / f"ours-{turn}", SEGMENT_BYTES[topic])
            compare(topic, log.directory, after / f"{topic}-0")
            log.close()


def fill(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """Three full segments and a bit of a fourth; the latest value of each key."""
    settings = {"enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 60_000}  # each batch is full
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    latest = {}
    for number in range(900):
        key, value = b"key %d" % (number % 37), b"value %d " % number * 6
        producer.produce(topic, value, key)
        latest[key] = value
        if number % 10 == 9:
            producer.flush(120)
    assert producer.flush(120) == 0
    return latest


def killed_at(directory: Path, step: int) -> int:
    """Leave a partition directory as after a kill before rename `step` of a cleaning; return the number of renames."""
    config = log_config(cleanup_policy=("compact",), segment_bytes=200_000)
    log = Log(
        TopicIdPartition("crash", uuid.UUID(int=1), 0),
        config,
        load_log(LoadRequest(directory=directory, clean=True)),
        NOW,
    )
    copy = directory.with_name(f"{directory.name}.killed")
    real, calls = os.rename, 0

    def rename(*arguments: str) -> None:
        nonlocal calls
        if calls == step:
            shutil.copytree(directory, copy)
        calls += 1
        real(*arguments)

    with mock.patch.object(os, "rename", rename):
        Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    log.discard()
    if copy.exists():
        shutil.rmtree(directory)
        copy.rename(directory)
    return calls


def test_kafka_loads_a_cleaning_killed_at_any_step(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "kafka", short_lived=True)
    topics = [f"crash-{step}" for step in range(STEPS + 1)]
    with kafka:
        for topic in topics:
            kafka.create_topic(topic, 1, SETTINGS)
        latest = [fill(kafka.bootstrap, topic) for topic in topics]
    for step, topic in enumerate(topics):
        directory = kafka.partition_dir(topic)
        closed = sorted(directory.glob("*.log"))[:-1]
        assert len(closed) == 3, [path.stat().st_size for path in closed]
        assert killed_at(directory, step) >= STEPS
    states = {tuple(sorted({path.suffix for path in kafka.partition_dir(topic).iterdir()})) for topic in topics}
    assert len(states) > 3
    (kafka.data_dir / ".kafka_cleanshutdown").unlink()
    with kafka:
        for topic, expected in zip(topics, latest, strict=True):
            rows = kafka.consume(topic)
            found = {row["key"]: row["value"] for row in rows}
            assert found == expected
            assert [path for path in kafka.partition_dir(topic).iterdir() if path.suffix in (".swap", ".cleaned")] == []
        log = kafka.server_log()
    assert "ERROR" not in log, log[log.index("ERROR") :][:1000]
