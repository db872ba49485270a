"""Producers, a consumer group and an offline reader that keep running while their broker is killed, and their checks.

    with CrashLoad(broker) as load:
        load.rounds(3, seed=1)        # kill -9 at random moments, look at the directory, start again
        load.finish()                 # everything sent is answered, consumed and committed

Each producer sends the numbers 0, 1, 2 ... to each partition. Idempotence makes the acknowledged ones a prefix: the log
must hold exactly 0, 1, 2 ... of each pair in that order, at least as many as were acknowledged.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_scan import scan_partition

TOPIC, GROUP, PARTITIONS = "crash", "crash", 4
PRODUCERS = CONSUMERS = 4
DEADLINE_S = 120
"""For what takes a second on an idle machine: a machine that is busy with other tests must not make this one fail."""

BROKER_PROPERTIES: dict[str, object] = {
    "num.partitions": PARTITIONS,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": False,
    # Recovery points are to move while the load runs, so that a start has a part of the log to recover.
    "log.flush.offset.checkpoint.interval.ms": 300,
    "log.flush.start.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
}
TOPIC_CONFIG: dict[str, object] = {
    "internal.segment.bytes": 150_000,
    "flush.messages": 3_000,
    "index.interval.bytes": 512,
}

_VALUE = struct.Struct(">iq")
_VALUES = np.dtype([("producer", ">i4"), ("number", ">i8")])
_CLIENT: dict[str, Any] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    # librdkafka 2.16 forgets the Metadata request that a member waits for before it joins when the broker dies at that
    # moment (join state wait-metadata in its log): only the next refresh, after five minutes by default, ends that.
    "topic.metadata.refresh.interval.ms": 1_000,
    "log_level": 0,  # a broker that goes away is what this is about
}


class Sender(threading.Thread):
    """An idempotent producer. acknowledged: how many numbers of each partition; failed: what must never happen."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(daemon=True, name=f"producer {number}")
        self.number = number
        self.stop = threading.Event()
        self.acknowledged = [0] * PARTITIONS
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": DEADLINE_S * 1000,
                "compression.type": ("none", "lz4", "zstd", "gzip")[number % 4],
                **_CLIENT,
            }
        )

    def run(self) -> None:
        try:
            sent = 0
            while not self.stop.is_set():
                partition = sent % PARTITIONS
                value = _VALUE.pack(self.number, sent // PARTITIONS)
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                sent += 1
                # No faster than this: the log is read from its beginning again and again.
                self._producer.poll(0.002 if sent % 16 == 0 else 0)
                while len(self._producer) > 1000 and not self.stop.is_set():
                    self._producer.poll(0.01)
            left = self._producer.flush(DEADLINE_S)
            if left:
                self.failed.append(f"{left} records were never answered")
        except Exception as error:  # noqa: BLE001  told by the test's thread
            self.failed.append(repr(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        number = _VALUE.unpack(message.value() or b"")[1]
        if error is not None:
            self.failed.append(f"number {number} of partition {partition}: {error}")
        elif number != self.acknowledged[partition]:
            self.failed.append(f"number {number} acknowledged after {self.acknowledged[partition]} others")
        else:
            self.acknowledged[partition] += 1


class Offsets:
    """Committed offsets of the group. acknowledged: the broker confirmed them; asked: a commit of them was sent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acknowledged = [0] * PARTITIONS
        self.asked = [0] * PARTITIONS
        self.commits = 0

    def ask(self, offsets: list[TopicPartition]) -> None:
        with self.lock:
            for one in offsets:
                self.asked[one.partition] = max(self.asked[one.partition], one.offset)

    def acknowledge(self, offsets: list[TopicPartition]) -> None:
        with self.lock:
            self.commits += 1
            for one in offsets:
                self.acknowledged[one.partition] = max(self.acknowledged[one.partition], one.offset)


class Member(threading.Thread):
    """A member of the group that commits the records it has read."""

    def __init__(self, bootstrap: str, number: int, offsets: Offsets) -> None:
        super().__init__(daemon=True, name=f"consumer {number}")
        self.stop = threading.Event()
        self.failed: list[str] = []
        self.assignments = 0
        self._offsets = offsets
        self._next: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                **_CLIENT,
            }
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)
            while not self.stop.is_set():
                messages = self._consumer.consume(500, 0.1)
                for message in messages:
                    self._take(message)
                if any(message.error() is None for message in messages):
                    self._commit()
            self._consumer.close()
        except Exception as error:  # noqa: BLE001  told by the test's thread
            self.failed.append(repr(error))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        for one in partitions:
            self._next.pop(one.partition, None)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._next.pop(one.partition, None)

    def _take(self, message: Message) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None:
            if not error.retriable() and error.code() != KafkaError._TRANSPORT:
                self.failed.append(str(error))
            return
        assert partition is not None
        assert offset is not None
        expected = self._next.get(partition)
        if expected is None:
            # Where it goes on after an assignment: at what is committed, which never goes back.
            if offset < self._offsets.acknowledged[partition] or offset > self._offsets.asked[partition]:
                self.failed.append(
                    f"partition {partition} goes on at offset {offset}, committed is "
                    f"{self._offsets.acknowledged[partition]} to {self._offsets.asked[partition]}"
                )
        elif offset != expected:
            self.failed.append(f"offset {offset} of partition {partition} came instead of {expected}")
        self._next[partition] = offset + 1

    def _commit(self) -> None:
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in self._next.items()]
        self._offsets.ask(offsets)
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # the broker is away, or the group is being rebalanced: nothing was promised
        self._offsets.acknowledge([one for one in done if one.error is None])


class LiveReader(threading.Thread):
    """Reads the partitions from their files while the broker writes, is killed, and recovers."""

    def __init__(self, log_dir: Path, acknowledged: Callable[[int], int]) -> None:
        super().__init__(daemon=True, name="offline reader")
        self.stop = threading.Event()
        self.failed: list[str] = []
        self.reads = 0
        self._log_dir = log_dir
        self._acknowledged = acknowledged
        self._counts = [0] * PARTITIONS

    def run(self) -> None:
        try:
            while not self.stop.is_set() and not self.failed:
                for partition in range(PARTITIONS):
                    at_least = max(self._counts[partition], self._acknowledged(partition))
                    count = len(read_partition(self._log_dir, partition))
                    if count < at_least:
                        self.failed.append(
                            f"{count} rows of partition {partition}, {at_least} are acknowledged or read"
                        )
                    self._counts[partition] = count
                self.reads += 1
        except Exception as error:  # noqa: BLE001  told by the test's thread
            self.failed.append(repr(error))


class CrashLoad:
    """The whole load on one running broker. Leaving the context ends all threads, also after an exception."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.offsets = Offsets()
        self.senders = [Sender(broker.bootstrap, number) for number in range(PRODUCERS)]
        self.members = [Member(broker.bootstrap, number, self.offsets) for number in range(CONSUMERS)]
        self.reader = LiveReader(broker.log_dir, self.acknowledged)

    @property
    def actors(self) -> list[Sender | Member | LiveReader]:
        return [*self.senders, *self.members, self.reader]

    def __enter__(self) -> Self:
        for actor in self.actors:
            actor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for actor in self.actors:
            actor.stop.set()
        if error is None:
            for actor in self.actors:
                actor.join(DEADLINE_S)
        self.broker.kill()

    def acknowledged(self, partition: int) -> int:
        """Number of acknowledged records of a partition."""
        return sum(sender.acknowledged[partition] for sender in self.senders)

    def rounds(self, rounds: int, seed: int) -> None:
        """Kill, look, start again. The moment is when some more records, or commits, have been acknowledged."""
        moments = random.Random(seed)
        for number in range(rounds):
            records = self._records() + moments.randrange(1, 4_000)
            commits = self.offsets.commits + (moments.randrange(1, 8) if number % 2 else 0)
            self._wait(lambda: self._records() >= records and self.offsets.commits >= commits, "the load")  # noqa: B023
            self.broker.kill()
            self.check_directory(f"round {number}")
            self.broker.start()
            self.check_committed()
            self.check_actors()

    def finish(self) -> None:
        """Let the producers end, and the group consume and commit all records."""
        for sender in self.senders:
            sender.stop.set()
        for sender in self.senders:
            sender.join(DEADLINE_S)
        self.check_actors()
        ends = [self.acknowledged(partition) for partition in range(PARTITIONS)]
        assert min(ends) > 0, "nothing was acknowledged: the test has shown nothing"
        self._wait(lambda: self.offsets.acknowledged == ends, f"the group to commit {ends}")
        self._wait(lambda: all(member.assignments for member in self.members), "every member to have been assigned")
        reads = self.reader.reads
        self._wait(lambda: self.reader.reads > reads + 1, "the offline reader")
        for actor in self.actors:
            actor.stop.set()
        for actor in self.actors:
            actor.join(DEADLINE_S)
        self.check_committed()
        self.check_actors()

    # ---- what must hold

    def check_actors(self) -> None:
        assert {actor.name: actor.failed for actor in self.actors if actor.failed} == {}, self.broker.log()[-3000:]

    def check_committed(self) -> None:
        asking = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, **_CLIENT})
        before = list(self.offsets.acknowledged)
        found = asking.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], timeout=DEADLINE_S)
        asking.close()
        for one, acknowledged in zip(found, before, strict=True):
            assert max(one.offset, 0) >= acknowledged, f"{one} is committed, {acknowledged} was acknowledged"
            assert one.offset <= self.offsets.asked[one.partition], f"{one} is committed, nobody asked for it"

    def check_directory(self, when: str, *, closed: bool = False) -> None:
        """Run kafkalog's check, and assert that the log has every acknowledged record exactly once and in order."""
        result = check_log_dirs([self.broker.log_dir], was_closed_cleanly=closed)
        lines = [str(finding) for finding in result.findings.kept if finding.is_error]
        assert lines == [], f"{when}: {lines}"
        for partition in range(PARTITIONS):
            values = read_partition(self.broker.log_dir, partition)
            for sender in self.senders:
                numbers = values["number"][values["producer"] == sender.number]
                acknowledged = sender.acknowledged[partition]
                place = f"{when}: producer {sender.number}, partition {partition}"
                assert len(numbers) >= acknowledged, f"{place}: {len(numbers)} of {acknowledged} acknowledged are there"
                wrong = np.flatnonzero(numbers != np.arange(len(numbers)))
                assert not len(wrong), f"{place}: number {numbers[wrong[0]]} stands at {wrong[0]}"

    def _records(self) -> int:
        return sum(map(self.acknowledged, range(PARTITIONS)))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            self.check_actors()
            assert time.monotonic() < end, f"waited {DEADLINE_S} s for {what}: {self.broker.log()[-3000:]}"
            time.sleep(0.005)


def read_partition(log_dir: Path, partition: int) -> npt.NDArray[Any]:
    """(producer, number) of every record, by offset. AssertionError when offsets do not run from 0 without a hole."""
    log = LogDirs.open(log_dir).partition(TOPIC, partition)
    offsets, values = [np.empty(0, np.int64)], b""
    for found in scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("offset", "value"))):
        offsets.append(found.column("offset").to_numpy())
        values += b"".join(found.column("value").to_pylist())
    got = np.concatenate(offsets)
    assert np.array_equal(got, np.arange(len(got))), f"offsets of partition {partition} are not 0, 1, 2 ..."
    return np.frombuffer(values, _VALUES)
