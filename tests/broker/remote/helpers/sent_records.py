"""Records of a topic with transactions, three codecs and headers, as sent and as read."""

from __future__ import annotations

import random
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = np.dtype([("offset", ">i8"), ("timestamp", ">i8"), ("crc", ">i8")])
"""The CRC is that of key, value, and names and values of the headers."""
Records = npt.NDArray[np.void]
VALUE = 1000
CODECS = ("gzip", "lz4", "zstd")
_POOL = random.Random(32).randbytes(1 << 16)
_HEADERS = "array_join(transform(headers, header -> header.key || coalesce(string(header.value), '')), '')"
SPARKS = (
    "offset",
    "unix_millis(timestamp) as timestamp",
    f"crc32(concat(coalesce(key, binary('')), value, binary({_HEADERS}))) as crc",
)
"""Columns of a RECORD, in Spark's SQL."""


class SentRecords:
    """Records of partition 0 of `topic`: sends in transactions of three producers that are open at the same time, one
    in four of which is aborted. Timestamps lie in the future, past those of the markers, and rise by and large."""

    def __init__(self, bootstrap: str, topic: str, in_transaction: int) -> None:
        from confluent_kafka import Producer

        self._topic, self._count = topic, in_transaction
        self._begin_ms = int(time.time() * 1000) + 86_400_000
        self._sent: list[tuple[int, int, int, int]] = []
        self._producers = [
            Producer({"bootstrap.servers": bootstrap, "transactional.id": codec, "compression.type": codec,
                      "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "log_level": 0})
            for codec in CODECS
        ]  # fmt: skip
        for producer in self._producers:
            producer.init_transactions()
        self._rounds = self._number = 0

    def send(self, count: int) -> None:
        """Send at least `count` more records."""
        for _ in range(-(-count // (self._count * len(CODECS)))):
            for producer in self._producers:
                producer.begin_transaction()
            for _ in range(self._count):
                for which, producer in enumerate(self._producers):
                    self._produce(producer, (self._rounds + which) % 4 > 0)
                    producer.poll(0)
            for which, producer in enumerate(self._producers):
                producer.flush()
                if (self._rounds + which) % 4:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
            self._rounds += 1

    def _produce(self, producer: Any, committed: bool) -> None:
        number, self._number = self._number, self._number + 1
        timestamp = self._begin_ms + 10 * (number + number * 37 % 11)
        key, at = None if number % 7 == 0 else b"key %d" % number, number * 31 % (len(_POOL) - VALUE)
        value, headers = _POOL[at : at + VALUE], [("number", b"%d" % number), ("empty", b""), ("none", None)]
        fields = (timestamp, crc_of(key, value, headers), committed)
        producer.produce(
            self._topic, value, key, partition=0, timestamp=timestamp, headers=headers,
            on_delivery=partial(self._delivered, fields),
        )  # fmt: skip

    def _delivered(self, fields: tuple[int, int, int], error: Any, message: Any) -> None:
        assert error is None, error
        self._sent.append((message.offset(), *fields))

    def records(self, committed: bool) -> Records:
        """Return the records that a reader must return, by offset."""
        rows = [row[:3] for row in self._sent if row[3] or not committed]
        return np.sort(np.array(rows, RECORD), order="offset")

    def timestamps(self, dice: random.Random, count: int) -> list[int]:
        """Return timestamps of records, and timestamps between them."""
        return [self._begin_ms + dice.randrange(10 * self._number) for _ in range(count)]

    def expected(self, ranges: Sequence[str], committed: bool) -> Records:
        """What those who read `ranges` are to see; as TieredReader.java has them."""
        everything, visible = self.records(False), self.records(committed)
        found = []
        for text in ranges:
            start, count = text.split(":")
            if start[0] == "@":  # aborted records are found, too
                first = int(everything["offset"][np.argmax(everything["timestamp"] >= int(start[1:]))])
            else:
                first = int(start)
            at = int(np.searchsorted(visible["offset"], first))
            found.append(visible[at : at + int(count)])
        return np.concatenate(found)


def crc_of(key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes | None]]) -> int:
    of_headers = b"".join(name.encode() + (value or b"") for name, value in headers)
    return zlib.crc32(of_headers, zlib.crc32(value, zlib.crc32(key or b"")))


def by_librdkafka(bootstrap: str, topic: str, isolation: str, ranges: Sequence[str]) -> Records:
    """Read `ranges` with librdkafka, in the form of `SentRecords.expected`.

    Raises:
        RuntimeError: If the consumer reports an error.
    """
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error", "enable.auto.commit": False,
        "isolation.level": isolation, "check.crcs": True, "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        return np.array(list(_of_ranges(consumer, topic, ranges)), RECORD)
    finally:
        consumer.close()


def _of_ranges(consumer: Any, topic: str, ranges: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    from confluent_kafka import KafkaError, TopicPartition

    for text in ranges:
        start, count = text.split(":")
        first = TopicPartition(topic, 0, int(start.lstrip("@")))
        if start[0] == "@":
            (first,) = consumer.offsets_for_times([first], 60)
        consumer.assign([first])
        left = int(count)
        while left:
            for message in consumer.consume(min(left, 5000), 0.05):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left = 0
                    break
                if error is not None:
                    raise RuntimeError(error)
                left -= 1
                crc = crc_of(message.key(), message.value(), message.headers())
                yield message.offset(), message.timestamp()[1], crc


def by_java(bootstrap: str, topic: str, isolation: str, ranges: Sequence[str], file: Path) -> Records:
    """As `by_librdkafka`, by the Java client, which writes into `file`."""
    from tests.interop.real_kafka import QUICK_JAVA, classpath

    program = Path(__file__).parents[3] / "interop" / "TieredReader.java"
    java = ["java", "-Xmx512m", *QUICK_JAVA, "-cp", classpath(), str(program)]
    asked = [bootstrap, topic, isolation, str(file), *ranges]
    ran = subprocess.run([*java, *asked], capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    return np.fromfile(file, RECORD)


def by_spark(frame: Any) -> Records:
    """Rows of a DataFrame of the topic, by offset."""
    table = frame.selectExpr(*SPARKS).toArrow()
    found = np.empty(table.num_rows, RECORD)
    for name in RECORD.names or ():
        found[name] = table[name].to_numpy()
    return np.sort(found, order="offset")
