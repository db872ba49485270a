"""Topics that benchmarks read, produced once to Apache Kafka and kept in ~/.cache/kafkalog-bench (about 8 GB).

The environment variable KAFKALOG_BENCH_CACHE names another directory. An existing topic is not produced again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.topics import FIRST_TIMESTAMP, PARTITIONS, POOL, Topic, home
from benchmarks.typed_formats import values_of
from tests.interop.real_kafka import RealKafka

BATCH_BYTES = 65_536
"""Size of a batch: between the 16 KB of Java's default and the 1 MB of librdkafka's."""

CODECS = ("none", "lz4", "zstd")
SMALL_VALUES = {codec: Topic(codec, 100, 4_000_000) for codec in CODECS}
LARGE_VALUES = {codec: Topic(codec, 1000, 2_000_000) for codec in CODECS}  # none: 2 GB
LONG = Topic("none", 100, 18_000_000)  # 2 GB of small records
KEYED = {codec: Topic(codec, 100, 4_000_000, prefix="keyed") for codec in ("none", "lz4")}
KEYS = 1_000_000  # of KEYED: record n has the key user-<n % KEYS>
JSON = Topic("none", 150, 2_000_000, prefix="json")  # objects of seven fields
TINY = Topic("none", 100, 40, prefix="tiny")
# 4 partitions of 250 segments: 400 k records of 112 bytes, rolled every 45 kB
SEGMENTS = Topic("none", 100, 400_000, (("internal.segment.bytes", 46_000),), "segments")
OTHER_CODECS = {codec: Topic(codec, 100, 1_000_000) for codec in ("gzip", "snappy")}


def log_dir() -> Path:
    """Return the log directory of the topics."""
    return RealKafka(home()).data_dir


def ensure(topics: Iterable[Topic]) -> Path:
    """Produce missing topics, stop Kafka cleanly, and return the log directory."""
    missing = [topic for topic in topics if not _marker(topic).exists()]
    if missing:
        with RealKafka(home()) as kafka:
            for topic in missing:
                print(f"producing {topic.name} ...", flush=True)
                begin = time.perf_counter()
                kafka.create_topic(topic.name, PARTITIONS, dict(topic.config))
                produce(kafka.bootstrap, topic)
                _marker(topic).touch()
                print(f"  {topic.records} records in {time.perf_counter() - begin:.1f} s", flush=True)
    return log_dir()


def _marker(topic: Topic) -> Path:
    return home() / f"{topic.name}.done"


def _pool(topic: Topic) -> list[bytes]:
    if topic.prefix == "json":
        return _json_values(topic)
    if topic.prefix in ("avro", "protobuf"):
        return values_of(topic.prefix)
    return _values(topic)


def _values(topic: Topic) -> list[bytes]:
    """Return values that are half random bytes and half text."""
    half = topic.value_size // 2
    tail = b"kafkalog " * (topic.value_size // 9 + 1)
    return [os.urandom(half) + tail[: topic.value_size - half] for _ in range(POOL)]


def _json_values(topic: Topic) -> list[bytes]:
    """Return JSON objects with seven fields, of which the last one pads the value to its size."""
    random = Random(topic.value_size)
    values = []
    for n in range(POOL):
        value = (
            f'{{"id":{n * 37},"user":"user-{random.randrange(10**6):06d}","amount":{random.randrange(10**6) / 100},'
            f'"country":"{random.choice(("DE", "FR", "PL", "US"))}","active":{random.choice(("true", "false"))},'
            f'"at":"2024-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}T{random.randrange(24):02d}:'
            f'{random.randrange(60):02d}:{random.randrange(60):02d}.{random.randrange(1000):03d}Z","note":"'
        )
        values.append(f'{value}{"x" * (topic.value_size - len(value) - 2)}"}}'.encode())
    return values


def produce(bootstrap: str, topic: Topic) -> None:
    """Produce all records of a topic. Raises RuntimeError if one is not acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 100,
            "batch.size": min(BATCH_BYTES, 20_000) if topic.prefix == "segments" else BATCH_BYTES,
            "compression.type": topic.codec,
            "queue.buffering.max.messages": 500_000,
        }
    )
    refused: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error)

    values = cycle(_pool(topic))
    for n in range(topic.records):
        partition, timestamp, value = n % PARTITIONS, FIRST_TIMESTAMP + n // PARTITIONS, next(values)
        key = f"user-{n % KEYS}" if topic.prefix == "keyed" else None
        while True:
            try:
                producer.produce(
                    topic.name, value, key, partition=partition, timestamp=timestamp, on_delivery=delivered
                )
                break
            except BufferError:  # the queue is full: process acknowledgements
                producer.poll(0.05)
        if n % 1000 == 0:
            producer.poll(0)
    if producer.flush(300) or refused:
        raise RuntimeError(f"{topic.name}: {len(refused)} records refused: {refused[:1]}")


if __name__ == "__main__":
    print(
        ensure(
            [
                *SMALL_VALUES.values(),
                *LARGE_VALUES.values(),
                LONG,
                TINY,
                SEGMENTS,
                *KEYED.values(),
                *OTHER_CODECS.values(),
            ]
        )
    )
