"""Tiered storage of a broker: how fast it copies, what producers lose meanwhile, how fast remote segments are read.

A folder is the store: what is measured is the broker, not a network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.report import Report, rate, ratio
from kafkalog_broker.testing import RunningBroker
from tests.broker.api.helpers.admin_scenario import SET, TOPIC, change, incremental
from tests.broker.api.helpers.plain_entities import request_entity

SEGMENT_BYTES = 16 << 20
TOTAL_BYTES = 256 << 20
ROUNDS = 3
VALUE = bytes(range(250)) * 4
SIZE = len(VALUE)
SETTINGS = {"remote.storage.enable": "true", "segment.bytes": SEGMENT_BYTES, "retention.ms": -1}


def properties(remote: Path, **others: Any) -> dict[str, Any]:
    """Of a broker that copies into a folder in Aiven's layout."""
    return {
        "remote.log.storage.system.enable": "true", "rsm.config.storage.root": remote,
        "remote.log.manager.task.interval.ms": 50, "log.retention.check.interval.ms": 50,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    } | others  # fmt: skip


def produce(bootstrap: str, topic: str, size: int) -> float:
    """Seconds for that many bytes of records of 1 kB."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1 << 20})
    began = time.perf_counter()
    for _ in range(size // SIZE):
        while True:
            try:
                producer.produce(topic, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return time.perf_counter() - began


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Seconds until that many records have come from offset 0 on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "fetch.max.bytes": 52_428_800})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, count = time.perf_counter(), 0
    while count < records:
        count += len(consumer.consume(10_000, 1.0))
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def wait_until(so: Callable[[], bool]) -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    while not so():
        time.sleep(0.01)
    return time.perf_counter() - began


def copied(remote: Path) -> int:
    """Segments whose copy is complete."""
    return sum(1 for _ in remote.rglob("*.rsm-manifest"))


def main(report: Report) -> None:
    """`python -m benchmarks.tiered_server`"""
    segments = TOTAL_BYTES // SEGMENT_BYTES - 1
    plain = {name: value for name, value in SETTINGS.items() if name != "remote.storage.enable"}
    with TemporaryDirectory(prefix="kafkalog-bench-") as home:
        remote, data = Path(home, "remote"), Path(home, "data")
        with RunningBroker(data, properties(remote)) as broker:
            broker.create_topic("plain", 1, plain)
            produce(broker.bootstrap, "plain", TOTAL_BYTES // 4)
            alone = [produce(broker.bootstrap, "plain", TOTAL_BYTES)]
            local = consume(broker.bootstrap, "plain", TOTAL_BYTES // SIZE)
            broker.create_topic("waits", 1, {**SETTINGS, "remote.log.copy.disable": "true", "local.retention.ms": -2})
            produce(broker.bootstrap, "waits", TOTAL_BYTES)
            operation = ("remote.log.copy.disable", SET, "false")
            key, (version,), fields = incremental(change(TOPIC, "waits", operation))
            broker.ask(request_entity(key, version, fields, {}))
            copying = wait_until(lambda: copied(remote) >= segments)
            broker.create_topic("busy", 1, {**SETTINGS, "local.retention.bytes": 1})
            produce(broker.bootstrap, "busy", TOTAL_BYTES // 4)
            busy = [produce(broker.bootstrap, "busy", TOTAL_BYTES)]
            for _ in range(ROUNDS - 1):
                alone.append(produce(broker.bootstrap, "plain", TOTAL_BYTES))
                busy.append(produce(broker.bootstrap, "busy", TOTAL_BYTES))
            wait_until(lambda: len(list((data / "busy-0").glob("*.log"))) == 1)
            remote_records = (
                (ROUNDS * TOTAL_BYTES + TOTAL_BYTES // 4) // SEGMENT_BYTES * SEGMENT_BYTES // SIZE * 9 // 10
            )
            cold = consume(broker.bootstrap, "busy", remote_records)
    copy_mb = segments * SEGMENT_BYTES / 1e6
    remote_mb, local_mb = remote_records * SIZE / 1e6 / cold, TOTAL_BYTES / 1e6 / local
    report.add(
        "tiered_server", "segments of 16 MB, records of 1 kB, a folder as the store",
        copying_MB_per_s=round(copy_mb / copying), bar_copying=">= 200",
        produce_MB_per_s=rate(TOTAL_BYTES / 1e6, alone), x_produce_while_copying=round(ratio(alone, busy), 2),
        bar_produce=">= 0.9", local_read_MB_per_s=round(local_mb), remote_read_MB_per_s=round(remote_mb),
        x_remote_of_local_read=round(remote_mb / local_mb, 2), bar_read=">= 0.5",
    )  # fmt: skip


if __name__ == "__main__":
    main(Report())
