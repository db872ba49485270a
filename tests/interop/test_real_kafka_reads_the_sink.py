"""A real Kafka loads segments that Spark has written, returns their records and appends further ones."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import BrokerOwnsDirectory
from tests.interop.real_kafka import RealKafka, available
from tests.sink.helpers.written_logs import START, read, staged_files, table, write

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

TOPIC = "written"
PARTITIONS = 3
COUNT = 3000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(seed: str, count: int = COUNT) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "key": rng.choice([None, b"", b"key %d" % rng.randrange(40)]),
            "value": rng.choice([None, b"", rng.randbytes(rng.randrange(400)), b"text " * rng.randrange(60)]),
            "headers": rng.choice([None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]]),
            "timestamp": START + rng.randrange(10**9),
            "partition": rng.choice([None, 0, 1, 2]),
        }
        for _ in range(count)
    ]


def produce(kafka: RealKafka, count: int, mark: bytes, topic: str = TOPIC) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for n in range(count):
        producer.produce(topic, mark + b" %d" % n, b"key %d" % n, partition=n % PARTITIONS, timestamp=START + n)
    assert producer.flush(120) == 0


def check_segments(kafka: RealKafka, *topics: str) -> None:
    """DumpLogSegments with its index checks has nothing to say of any segment."""
    logs = [
        path
        for topic in topics
        for partition in range(PARTITIONS)
        for path in sorted(kafka.partition_dir(topic, partition).glob("*.log"))
    ]
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    text = kafka.tool("DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, logs)))
    assert text.count("isvalid: true") > len(logs)
    assert "isvalid: false" not in text
    text = kafka.tool(
        "DumpLogSegments", "--index-sanity-check", "--verify-index-only", "--files", ",".join(map(str, indexes))
    )
    for complaint in ("Mismatches", "out of order", "Exception", "found that", "Found", "fail"):
        assert complaint not in text, text
    empty = [path for path in indexes if path.suffix == ".index" and path.stat().st_size == 0]
    assert text.count("passed sanity check") == len(indexes) - len(empty), text


def consumed(kafka: RealKafka, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    return [
        (row["partition"], row["offset"], row["key"], row["value"], row["timestamp"], tuple(map(tuple, row["headers"])))
        for row in kafka.consume(topic)
    ]


def in_files(log_dir: Path, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    return [
        (row["partition"], row["offset"], row["key"], row["value"], row["timestamp"],
         tuple((pair["key"], pair["value"]) for pair in row["headers"] or ()))
        for row in read(log_dir, topic)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "codecs"), [("clean", CODECS), ("crashed", ("none", "zstd"))], ids=["clean", "crashed"]
)
def test_kafka_and_sink_take_turns_in_a_directory(tmp_path: Path, start: str, codecs: tuple[str, ...]) -> None:
    """Kafka, the sink, Kafka again, the sink again; `crashed`: Kafka is killed instead of stopped. Recovery does not
    look at codecs: two of them are enough there."""
    kafka = RealKafka(tmp_path, short_lived=True)
    kafka.start()
    topics = {codec: f"{TOPIC}-{codec}" for codec in codecs}
    settings: dict[str, dict[str, Any]] = {
        codec: {"topic": topic, "compression_type": codec, "segment_bytes": "64k", "batch_size": "3000"}
        for codec, topic in topics.items()
    }
    try:
        for topic in topics.values():
            kafka.create_topic(topic, PARTITIONS, {"internal.segment.bytes": 60_000})
            produce(kafka, 300, b"first", topic)
        kafka.stop() if start == "clean" else kafka.kill()
        ours = {codec: rows(codec) for codec in codecs}
        for codec, given in ours.items():
            two = table(given[:2000]), table(given[2000:])
            write(kafka.data_dir, *two, query=codec, batch=0, **settings[codec])
        check_segments(kafka, *topics.values())
        kafka.start()
        for codec, topic in topics.items():
            found = consumed(kafka, topic)
            assert found == in_files(kafka.data_dir, topic)
            assert len(found) == 300 + COUNT
            assert sorted(map(repr, (row["value"] for row in ours[codec]))) == sorted(
                repr(value) for _, _, _, value, _, _ in found if not (value or b"").startswith(b"first ")
            )
            with pytest.raises(BrokerOwnsDirectory):
                write(kafka.data_dir, table(rows("refused", 10)), **settings[codec])
            produce(kafka, 300, b"second", topic)
        kafka.stop() if start == "clean" else kafka.kill()
        for codec, given in ours.items():
            assert not write(kafka.data_dir, table(given), query=codec, batch=0, **settings[codec])
            write(kafka.data_dir, table(rows("more", 500)), query=codec, batch=1, **settings[codec])
        check_segments(kafka, *topics.values())
        kafka.start()
        for topic in topics.values():
            found = consumed(kafka, topic)
            assert found == in_files(kafka.data_dir, topic)
            assert len(found) == 600 + COUNT + 500
            offsets = [(row[0], row[1]) for row in found]
            assert all(b[1] == a[1] + 1 for a, b in pairwise(offsets) if a[0] == b[0])
        kafka.stop()
    finally:
        kafka.kill()


def test_kafka_starts_on_a_directory_with_staged_and_half_published_files(tmp_path: Path) -> None:
    """A sink that was killed in the middle of its moves; Kafka comes first, the next sink afterwards."""
    from tests.sink.helpers.crashing_steps import KILLED, CountingSteps, KillingSteps, in_child

    kafka = RealKafka(tmp_path, short_lived=True)
    kafka.start()
    try:
        kafka.create_topic(TOPIC, PARTITIONS)
        produce(kafka, 30, b"first")
        kafka.stop()
        ours = [table(rows(str(task), 300)) for task in range(2)]
        settings: dict[str, Any] = {"topic": TOPIC, "segment_bytes": "20k", "batch_size": "2000"}
        counted = CountingSteps()
        copy = tmp_path / "copy"

        shutil.copytree(kafka.data_dir, copy)
        write(copy, *ours, query="q", batch=0, on_step=counted, **settings)
        renames = [number for number, (what, _) in enumerate(counted.steps) if what == "rename"]
        at = renames[len(renames) // 2]
        code = in_child(lambda: write(kafka.data_dir, *ours, query="q", batch=0, on_step=KillingSteps(at), **settings))
        assert code == KILLED
        assert staged_files(kafka.data_dir)
        kafka.start()
        between = len(consumed(kafka))
        assert 30 < between < 630
        produce(kafka, 30, b"second")
        kafka.stop()
        assert not write(kafka.data_dir, *ours, query="q", batch=0, **settings)
        assert staged_files(kafka.data_dir) == []
        check_segments(kafka, TOPIC)
        kafka.start()
        found = consumed(kafka)
        assert len(found) == 660
        assert found == in_files(kafka.data_dir)
        kafka.stop()
    finally:
        kafka.kill()
