"""Kafka Streams 4.3.0 with group.protocol=streams (KIP-1071) and exactly_once_v2: counts, windowed sums and a join are
exact whatever is killed, on this broker as on a real Kafka. Groups go from one broker to the other with their
directory.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from tests.interop.real_kafka import QUICK_JAVA, RealKafka, available, cache_dir, end_with_parent, maven_copy

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.slow]

PARTITIONS, APPLICATION = 4, "shop"
INPUTS, OUTPUTS = ("words", "numbers", "users", "orders"), ("counts", "sums", "joined")
PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.streams.min.session.timeout.ms": 1000,
    "group.streams.session.timeout.ms": 5000,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.num.standby.replicas": 1,
    "log.retention.ms": -1,
}
_JAVA = Path(__file__).with_name("StreamsWork.java")
_WORDS, _KEYS, _USERS = 20, 8, 50
_SECONDS = 180.0
Side = RunningBroker | RealKafka


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Class path of the application."""
    libraries = cache_dir() / "streams-4.3.0"
    maven_copy(
        libraries,
        [
            ("org.apache.kafka", "kafka-streams", "4.3.0"),
            ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
            ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
        ],
    )
    target = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-d", target, "-cp", f"{libraries}/*", _JAVA], check=True, timeout=120)
    return f"{target}:{libraries}/*"


class Instance:
    """A process of the application, with a state directory of its own."""

    def __init__(self, classes: str, bootstrap: str, state: Path, *properties: str) -> None:
        command = ["java", "-Xmx256m", *QUICK_JAVA, "-cp", classes, "StreamsWork", bootstrap, APPLICATION, str(state)]
        command += [
            "group.protocol=streams", "processing.guarantee=exactly_once_v2", "num.stream.threads=2",
            "commit.interval.ms=200", "replication.factor=1", *properties,
        ]  # fmt: skip
        self._state = state
        self._command = command
        self.start()

    def start(self) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=end_with_parent,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: Any) -> None:
        for line in process.stdout:
            self.lines.append(line.rstrip())

    def kill(self) -> None:
        """Kill the process with -9 and delete its state directory."""
        self.process.kill()
        self._end(20)
        shutil.rmtree(self._state, ignore_errors=True)

    def stop(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
        self._end(60)

    def _end(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        self._reader.join(20)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _time(number: int) -> int:
    """Twenty numbers in a second, from some time on."""
    return 1_700_000_000_000 + number // 20 * 1_000


class Records:
    """The produced records and the expected results."""

    def __init__(self) -> None:
        self.words = self.numbers = self.orders = 0

    def produce(self, bootstrap: str, count: int) -> None:
        """`count` more of words, numbers and orders each."""
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        if not self.orders:
            for user in range(_USERS):
                producer.produce("users", f"name{user}", str(user), timestamp=1)
            assert not producer.flush(60)
        for number in range(self.words, self.words + count):
            producer.produce("words", f"word{number * 7 % _WORDS}")
            producer.produce("numbers", str(number), str(number % _KEYS), timestamp=_time(number))
            producer.produce("orders", f"order{number}", str(number % _USERS), timestamp=2)
            producer.poll(0)
        self.words = self.numbers = self.orders = self.words + count
        assert not producer.flush(60)

    def missing(self, outputs: dict[str, list[tuple[str, str]]]) -> int:
        return sum(self.words - len(outputs[topic]) for topic in OUTPUTS)

    def check(self, outputs: dict[str, list[tuple[str, str]]]) -> None:
        counts: dict[str, list[int]] = defaultdict(list)
        for word, count in outputs["counts"]:
            counts[word].append(int(count))
        assert len(counts) == _WORDS
        assert all(found == list(range(1, len(found) + 1)) for found in counts.values())
        expected: dict[str, list[int]] = defaultdict(list)
        for number in range(self.numbers):
            sums = expected[f"{number % _KEYS}@{_time(number) // 10_000 * 10_000}"]
            sums.append((sums[-1] if sums else 0) + number)
        found_sums: dict[str, list[int]] = defaultdict(list)
        for key, total in outputs["sums"]:
            found_sums[key].append(int(total))
        assert found_sums == expected
        orders = sorted(f"order{number}:name{number % _USERS}" for number in range(self.orders))
        assert sorted(value for _, value in outputs["joined"]) == orders


def outputs(bootstrap: str) -> dict[str, list[tuple[str, str]]]:
    """Return the committed (key, value) pairs of each topic, by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
         "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    found: dict[str, list[tuple[str, str]]] = {topic: [] for topic in OUTPUTS}
    try:
        parts = [TopicPartition(topic, index, 0) for topic in OUTPUTS for index in range(PARTITIONS)]
        consumer.assign(parts)
        ended: set[tuple[str, int]] = set()
        end = time.monotonic() + 60
        while len(ended) < len(parts) and time.monotonic() < end:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found[message.topic()].append((message.key().decode(), message.value().decode()))
            else:
                ended.add((message.topic(), message.partition()))
    finally:
        consumer.close()
    return found


def complete(side: Side, records: Records, instances: list[Instance]) -> None:
    """Wait until all results are complete, and check them."""
    end = time.monotonic() + _SECONDS
    while (missing := records.missing(found := outputs(side.bootstrap))) > 0:
        assert time.monotonic() < end, (missing, [instance.lines[-8:] for instance in instances])
        time.sleep(1)
    records.check(found)


def topics(side: Side) -> None:
    for topic in (*INPUTS, *OUTPUTS):
        side.create_topic(topic, PARTITIONS)


def running(instances: list[Instance]) -> None:
    end = time.monotonic() + _SECONDS
    while not all("RUNNING" in instance.lines for instance in instances):
        assert time.monotonic() < end, [instance.lines[-8:] for instance in instances]
        time.sleep(0.2)


@pytest.mark.parametrize("side", ["ours", "kafka"])
def test_results_of_killed_applications_are_exact(side: str, classes: str, tmp_path: Path) -> None:
    made: dict[str, Callable[[], Side]] = {
        "ours": lambda: RunningBroker(tmp_path / "broker", PROPERTIES),
        "kafka": lambda: RealKafka(tmp_path / "broker", PROPERTIES, short_lived=True),
    }
    broker, records, instances = made[side](), Records(), []
    broker.start()
    try:
        topics(broker)
        records.produce(broker.bootstrap, 600)
        instances = [Instance(classes, broker.bootstrap, tmp_path / f"state{number}") for number in range(2)]
        running(instances)
        for instance in instances:
            records.produce(broker.bootstrap, 600)
            instance.kill()
            records.produce(broker.bootstrap, 600)
            instance.start()
            running([instance])
        records.produce(broker.bootstrap, 600)
        broker.kill()
        time.sleep(1)
        broker.start()
        records.produce(broker.bootstrap, 600)
        complete(broker, records, instances)
    finally:
        for instance in instances:
            instance.stop()
        broker.stop()


def described(side: Side) -> str:
    """What kafka-streams-groups.sh says of the application, without what differs by chance."""
    from tests.interop.real_kafka import run_tool

    tool = "org.apache.kafka.tools.streams.StreamsGroupCommand"
    connection = ("--bootstrap-server", side.bootstrap)
    said = [run_tool(tool, *connection, "--list", "--state")]
    for what in ("--state", "--offsets"):
        said.append(run_tool(tool, *connection, "--describe", "--group", APPLICATION, what, "--verbose"))
    lines = "\n".join(said).replace(side.bootstrap, "BROKER").splitlines()
    return "\n".join(sorted(" ".join(line.split()) for line in lines if line.strip()))


def test_application_continues_after_a_move_from_kafka_and_back(classes: str, tmp_path: Path) -> None:
    kafka, records = RealKafka(tmp_path / "kafka", PROPERTIES, short_lived=True), Records()
    ours = RunningBroker(kafka.data_dir, {"node.id": 1, **PROPERTIES})
    kafka.start()
    topics(kafka)
    left = None
    sides: list[Side] = [kafka, ours, kafka]
    for number, side in enumerate(sides):
        if number:
            side.start()
            assert described(side) == left, "what the other one left"
        instances = []
        try:
            records.produce(side.bootstrap, 400)
            instances = [Instance(classes, side.bootstrap, tmp_path / f"state{number}-{at}") for at in range(2)]
            running(instances)
            complete(side, records, instances)
        finally:
            for instance in instances:
                instance.stop()
        left = described(side)
        while "Empty" not in left:
            time.sleep(1)
            left = described(side)
        side.stop()
