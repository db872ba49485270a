"""Tiered storage of a broker, in a folder and on an S3 server of the same machine.

Measured are the rate of copying and its effect on producers, the rate of reading remote segments and its effect on
other clients, and the memory and start time with many remote segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from benchmarks.report import Report, rate, ratio
from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.format.checkpoint import EpochEntry, write_leader_epochs
from kafkalog_spark.format.partition_metadata import new_uuid, write_partition_metadata
from kafkalog_spark.log.repair.from_tier import write_metadata_topic
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.attacks.probe import Memory, Probe
from tests.broker.api.helpers.admin_scenario import SET, TOPIC, change, incremental
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.remote.helpers.tiered_broker import s3_properties
from tests.store.s3_server import S3Server

SEGMENT_BYTES = 16 << 20
TOTAL_BYTES = 256 << 20
ROUNDS = 3
SEGMENTS, FEW = 10_000, 100
VALUE = bytes(range(250)) * 4
SIZE = len(VALUE)
SETTINGS = {"remote.storage.enable": "true", "segment.bytes": SEGMENT_BYTES, "retention.ms": -1}


def properties(remote: Path, **others: Any) -> dict[str, Any]:
    """Create a folder, and return the properties of a broker that copies segments to it in Aiven's layout."""
    remote.mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true", "rsm.config.storage.root": remote,
        "remote.log.manager.task.interval.ms": 50, "log.retention.check.interval.ms": 50,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    } | others  # fmt: skip


def produce(bootstrap: str, topic: str, size: int) -> float:
    """Produce `size` bytes in records of 1 kB, and return the seconds."""
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
    """Consume `records` records from offset 0, and return the seconds."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "fetch.max.bytes": 52_428_800})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, count = time.perf_counter(), 0
    while count < records:
        count += len(consumer.consume(10_000, 1.0))
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def wait_until(condition: Callable[[], bool]) -> float:
    """Wait until the condition is true, and return the seconds."""
    began = time.perf_counter()
    while not condition():
        time.sleep(0.01)
    return time.perf_counter() - began


def copied(remote: Path) -> int:
    """Return the number of segments that are completely copied."""
    return sum(1 for _ in remote.rglob("*.rsm-manifest"))


def main(report: Report) -> None:
    """Run all measurements."""
    copying_into_a_folder(report)
    reading_from_s3(report)
    many_segments(report)


def copying_into_a_folder(report: Report) -> None:
    """Report copying to a folder, producing meanwhile, and reading back."""
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


def reading_from_s3(report: Report) -> None:
    """Report reads of a broker that has just started, so that no remote segment is cached."""
    records = (TOTAL_BYTES // SEGMENT_BYTES - 1) * SEGMENT_BYTES // SIZE * 9 // 10
    local, remote, waits = [], [], []
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, S3Server(Path(home, "buckets")) as server:
        server.make_bucket("tier")
        in_bucket = properties(Path(home), **s3_properties(server))
        del in_bucket["rsm.config.storage.root"]
        broker = RunningBroker(Path(home, "data"), in_bucket)
        with broker:
            for topic in ("local", "remote"):
                broker.create_topic(topic, 1, SETTINGS | ({"local.retention.bytes": 1} if topic == "remote" else {}))
                produce(broker.bootstrap, topic, TOTAL_BYTES)
            wait_until(lambda: len(list(Path(home, "data", "remote-0").glob("*.log"))) == 1)
        for _ in range(ROUNDS):
            with broker, Probe(broker.host, broker.port) as probe:
                local.append(consume(broker.bootstrap, "local", records))
                local_waits = probe.waits()
                remote.append(consume(broker.bootstrap, "remote", records))
                waits.append((probe.waits(), local_waits))
    report.add(
        "tiered_server", "a cold read of 16 MB segments from S3, and what another client's requests wait meanwhile",
        local_read_MB_per_s=rate(records * SIZE / 1e6, local), remote_read_MB_per_s=rate(records * SIZE / 1e6, remote),
        x_remote_of_local_read=round(ratio(local, remote), 2), bar_read=">= 0.5",
        longest_wait_ms=round(max(one.longest for one, _ in waits)), bar_wait="<= 100",
        p99_wait_ms=round(max(one.p99 for one, _ in waits), 1),
        longest_wait_beside_local_ms=round(max(one.longest for _, one in waits)),
    )  # fmt: skip


def many_segments(report: Report) -> None:
    """Report the start of a broker with many entries in `__remote_log_metadata`, compared with few."""
    partition = TopicIdPartition("orders", new_uuid(), 0)
    few_memory, few_seconds = started_with(partition, FEW)
    memory, seconds = started_with(partition, SEGMENTS)
    report.add(
        "tiered_server", f"{SEGMENTS} remote segments, beside a broker that knows {FEW}",
        memory_MB=round(memory - few_memory, 1), bar_memory="<= 30",
        start_s=round(seconds, 2), of_it_s=round(seconds - few_seconds, 2),
        bar_start="<= 2",
    )  # fmt: skip


def started_with(partition: TopicIdPartition, count: int) -> tuple[float, float]:
    """Start a broker with `count` remote segments. Return its memory in MB, and the seconds of the start."""
    segments = [
        RemoteSegment(
            partition, UUID(int=number), 1000 * number, 1000 * number + 999, (EpochEntry(0, 1000 * number),),
            SEGMENT_BYTES, 1_700_000_000_000 + number, 1, 1_700_000_000_000 + number, None,
        )
        for number in range(count)
    ]  # fmt: skip
    with TemporaryDirectory(prefix="kafkalog-bench-") as home:
        data = Path(home, "data")
        write_metadata_topic(data, 1, {partition: segments})
        log = data / "orders-0"
        log.mkdir()
        write_partition_metadata(log / "partition.metadata", partition.topic_id)
        write_leader_epochs(log / "leader-epoch-checkpoint", [EpochEntry(0, 0)])
        with SegmentWriter.create(log, segments[-1].until) as writer:
            writer.flush()
        broker = RunningBroker(data, properties(Path(home, "remote")))
        with broker:  # the first start recovers the directory, because a broker has not stopped cleanly in it
            pass
        began = time.perf_counter()
        with broker:
            seconds = time.perf_counter() - began
            assert broker.pid is not None
            memory = Memory(broker.pid)
            memory.close()
            return memory.now(), seconds


if __name__ == "__main__":
    main(Report())
