"""A real Kafka's directory is damaged in fifty places and repaired; the same Kafka loads what came of it, its consumer
returns every record, its tools agree with our tables, and it goes on from there."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from tests.interop import consume
from tests.interop.real_kafka import RealKafka, available
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

TOPIC, PARTITIONS, RECORDS = "orders", 50, 20_000
GROUP = "readers"


def produce(kafka: RealKafka, count: int, mark: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "batch.size": 2000})
    for n in range(count):
        while True:
            try:
                producer.produce(TOPIC, mark + b" %d" % n * 5, b"key %d" % n, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def commit(kafka: RealKafka) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP})
    offsets = [TopicPartition(TOPIC, partition, 7 * partition) for partition in range(0, PARTITIONS, 3)]
    consume.commit(consumer, offsets)
    consumer.close()


def lags(text: str) -> dict[int, tuple[int, int, int]]:
    """Partition -> (offset, log end offset, lag), as ConsumerGroupCommand --describe prints them."""
    rows = re.findall(rf"^{GROUP}\s+{TOPIC}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", text, re.MULTILINE)
    return {int(p): (int(offset), int(end), int(lag)) for p, offset, end, lag in rows}


def damage(path: Path, numbers: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = numbers.randrange(len(data))
    match numbers.randrange(4):
        case 0:
            data[at] ^= 1 << numbers.randrange(8)
        case 1:
            size = min(4096, len(data) - at)
            data[at : at + size] = bytes(size)
        case 2:
            del data[at:]
        case 3:
            data[at:at] = numbers.randbytes(numbers.randrange(1, 3000))
    path.write_bytes(data)


def ours(root: Path) -> list[dict[str, Any]]:
    return plain_rows(LogDirs.open(root).scan(TOPIC, columns=ALL_COLUMNS))


def check_goes_on(kafka: RealKafka, kept: list[dict[str, Any]]) -> None:
    """Started on a repaired directory, it gives the records that were kept, and takes one more in each partition."""
    kafka.start()
    try:
        consumed = {(row["partition"], row["offset"]): row["value"] for row in kafka.consume(TOPIC)}
        assert consumed == {(row["partition"], row["offset"]): row["value"] for row in kept}
        produce(kafka, PARTITIONS, b"after")
        assert len(kafka.consume(TOPIC)) == len(kept) + PARTITIONS
    finally:
        kafka.stop()


def test_kafka_loads_a_repaired_directory(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "kafka")
    with kafka:
        kafka.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 20_000})
        produce(kafka, RECORDS, b"before")
        commit(kafka)
        described = kafka.tool(
            "ConsumerGroupCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", GROUP
        )
        ends = kafka.tool("GetOffsetShell", "--bootstrap-server", kafka.bootstrap, "--topic", TOPIC)
    dirs = LogDirs.open(kafka.data_dir)
    offsets = dirs.table("consumer_offsets").read_all().to_pylist()
    found = {row["partition"]: (row["offset"], row["log_end_offset"], row["lag"]) for row in offsets}
    assert found == lags(described) != {}
    partitions = dirs.table("partitions", TOPIC).read_all().to_pylist()
    assert {row["partition"]: row["log_end_offset"] for row in partitions} == {
        int(partition): int(end) for partition, end in re.findall(rf"^{TOPIC}:(\d+):(\d+)$", ends, re.MULTILINE)
    }
    numbers = random.Random(18)
    before = {(row["partition"], row["offset"]): row for row in ours(kafka.data_dir)}
    assert len(before) == RECORDS
    for partition in range(PARTITIONS):
        damage(numbers.choice(sorted(kafka.partition_dir(TOPIC, partition).glob("*.log"))), numbers)
    report = repair_log_dirs([kafka.data_dir], tmp_path / "repaired")
    assert not report.is_whole
    assert [str(f) for f in check_log_dirs([tmp_path / "repaired"]).findings.kept if f.is_error] == []
    kafka.data_dir.rename(tmp_path / "damaged")
    (tmp_path / "repaired").rename(kafka.data_dir)
    kept = ours(kafka.data_dir)
    assert RECORDS // 2 < len(kept) < RECORDS
    assert [row for row in kept if row["value"] != before[row["partition"], row["offset"]]["value"]] == []
    check_goes_on(kafka, kept)
    assert [str(f) for f in check_log_dirs([kafka.data_dir]).findings.kept if f.is_error] == []
    logs = sorted(kafka.data_dir.glob(f"{TOPIC}-*/*.log"))
    text = kafka.tool("DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, logs)))
    assert "isvalid: true" in text
    assert "isvalid: false" not in text
