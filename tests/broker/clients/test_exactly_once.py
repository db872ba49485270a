"""Records go from topic to topic in transactions with the offsets of the group, under kill -9: exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests.broker.clients.helpers.copier import INPUTS, PARTITIONS
from tests.broker.clients.helpers.supervisor import Copier, Supervisor

pytestmark = pytest.mark.end_to_end

WAIT = 120
DEADLINE_S = 300
"""For what takes some seconds on an idle machine, a copier that stands still included."""

PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
COPIERS = (("librdkafka", "copier-1"), ("librdkafka", "copier-2"), ("aiokafka", "copier-3"))
GROUPS = {"librdkafka": "copiers", "aiokafka": "loner"}
"""The group of each client, whose name is that of the topic it copies to."""


def records(log_dir: Path, topic: str, *, read_committed: bool = True) -> list[bytes]:
    """The values of all partitions, from the files."""
    dirs = LogDirs.open(log_dir)
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        log = dirs.partition(topic, partition)
        request = ScanRequest(columns=("value",), read_committed=read_committed)
        for rows in scan_partition(log, log.log_start_offset, last_stable_offset(log), request):
            found += rows.column("value").to_pylist()
    return found


def check_copies(log_dir: Path, fed: int) -> dict[str, int]:
    """Assert that each copy is of an input record and exists once; return the number of copies in each topic."""
    counts = {}
    for topic in GROUPS:
        found = [int(value) for value in records(log_dir, topic)]
        assert len(found) == len(set(found)), f"a record was copied twice to {topic}"
        assert all(0 <= number < fed for number in found)
        counts[topic] = len(found)
    return counts


def copied_under_crashes(directory: Path, more: int, rounds: int, seed: int) -> Supervisor:
    """`more` records before each kill of the broker; copiers are killed before and behind it. What became of the
    copiers; the broker has stopped."""
    moments = random.Random(seed)
    broker = RunningBroker(directory / "data", PROPERTIES)
    broker.start()
    for topic in (INPUTS, *GROUPS):
        broker.create_topic(topic, PARTITIONS)
    for group in GROUPS.values():  # where to begin (copier.py tells why)
        begin = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        begin.commit(offsets=[TopicPartition(INPUTS, number, 0) for number in range(PARTITIONS)], asynchronous=False)
        begin.close()
    feeder = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 20,
                       "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0})  # fmt: skip
    fed = 0
    supervisor = Supervisor(Copier(client, broker.bootstrap, name, directory) for client, name in COPIERS)

    def feed() -> None:
        nonlocal fed
        for number in range(fed, fed + more):
            feeder.produce(INPUTS, b"%d" % number, partition=number % PARTITIONS)
        assert feeder.flush(WAIT) == 0
        fed += more
        supervisor.have_work = set(GROUPS)

    def failures() -> list[str]:
        return [text for copier in supervisor.copiers for text in copier.failed]

    try:
        with supervisor:
            supervisor.broker_serves(True)
            for _ in range(rounds):
                feed()
                # the load is what a kill has to meet, at any moment
                supervisor.wait_for_commits(moments.randrange(1, 40), DEADLINE_S)
                supervisor.kill_one(moments)
                supervisor.wait_for_commits(moments.randrange(1, 40), DEADLINE_S)
                supervisor.broker_serves(False)
                broker.kill()
                check_copies(broker.log_dir, fed)
                if moments.random() < 0.3:
                    supervisor.kill_one(moments)
                broker.start()
                supervisor.broker_serves(True)
                assert failures() == []
            end = time.monotonic() + DEADLINE_S
            while supervisor.have_work or not all(copier.commits for copier in supervisor.copiers):
                if not supervisor.have_work:
                    feed()  # one of two has copied all before the other had begun
                counts = check_copies(broker.log_dir, fed)
                supervisor.have_work = {client for client, copied in counts.items() if copied < fed}
                assert failures() == []
                assert time.monotonic() < end, (counts, fed, supervisor.logs())
                time.sleep(0.2)
            # idle copiers stay: a commit that comes late, or twice, would show below
            check_committed(broker.bootstrap, fed)
        assert failures() == []
        broker.stop()
        for topic in GROUPS:
            assert sorted(map(int, records(broker.log_dir, topic))) == list(range(fed))
    finally:
        broker.kill()
    return supervisor


def check_committed(bootstrap: str, fed: int) -> None:
    """Assert that the committed offsets of the groups are at the end of the input."""
    for group in GROUPS.values():
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        committed = reader.committed([TopicPartition(INPUTS, number) for number in range(PARTITIONS)], WAIT)
        reader.close()
        assert [found.offset for found in committed] == [fed // PARTITIONS] * PARTITIONS, group


def test_records_are_copied_exactly_once_over_two_crashes(tmp_path: Path) -> None:
    copied_under_crashes(tmp_path, more=4_000, rounds=2, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_records_are_copied_exactly_once_over_thirty_crashes(tmp_path: Path) -> None:
    supervisor = copied_under_crashes(tmp_path, more=4_000, rounds=30, seed=2)
    assert all(copier.starts > 5 for copier in supervisor.copiers)
    for topic in GROUPS:
        every = records(tmp_path / "data", topic, read_committed=False)
        assert len(every) > len(set(every)), f"no transaction of {topic} was aborted: the kills met nothing"
