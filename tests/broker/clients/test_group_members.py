"""Groups of several members that join, leave and crash: every partition has one owner again, and no record is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog_broker.testing import RunningBroker, running_broker

pytestmark = pytest.mark.end_to_end

SECONDS = 120
"""For what takes a second on an idle machine."""
PARTITIONS = 6
SETTINGS = {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 300, "auto.offset.reset": "earliest"}
"""A session that a busy machine does not miss."""
CRASHING = {**SETTINGS, "session.timeout.ms": 6000}
"""Of the member that crashes: the others wait for its end."""

_CRASHING = """
import sys
from confluent_kafka import Consumer
consumer = Consumer(dict(zip(sys.argv[2::2], sys.argv[3::2])))
consumer.subscribe([sys.argv[1]])
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(
        {
            "group.min.session.timeout.ms": 1000,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": False,
        }
    ) as running:
        yield running


class Member(threading.Thread):
    """A consumer in a thread of its own. `given`, `taken`: all partitions ever assigned and revoked; `owned`: those it
    has, a set of its own after each change, as others look at it; `records`: (partition, value)."""

    def __init__(self, broker: RunningBroker, group: str, topic: str, **conf: Any) -> None:
        super().__init__(daemon=True)
        self.owned: set[int] = set()
        self.taken: list[int] = []
        self.given: list[int] = []
        self.records: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self._topic, self._stop_asked = topic, threading.Event()
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, **SETTINGS, **conf}
        self._cooperative = settings.get("partition.assignment.strategy") == "cooperative-sticky"
        self.consumer = Consumer(settings)
        self.start()

    def run(self) -> None:
        self.consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        while not self._stop_asked.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(message.error().name())
            else:
                self.records.append((message.partition(), message.value()))
        self.consumer.close()

    def leave(self) -> None:
        """Commit, leave the group and end."""
        self._stop_asked.set()
        self.join(SECONDS)
        assert not self.is_alive()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.given += [one.partition for one in partitions]
        self.owned = self.owned | {one.partition for one in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken += [one.partition for one in partitions]
        self.owned = self.owned - {one.partition for one in partitions}


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {SECONDS} s: {what}"
        time.sleep(0.02)


def share(*members: Member) -> bool:
    """Return whether these members own each partition once, and their numbers of partitions differ by one at most."""
    owned = [set(member.owned) for member in members]
    sizes = [len(partitions) for partitions in owned]
    return sum(sizes) == PARTITIONS == len(set.union(*owned)) and max(sizes) - min(sizes) <= 1


def stable_with(broker: RunningBroker, group: str, members: int) -> bool:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    told = admin.describe_consumer_groups([group])[group].result(SECONDS)
    return (told.state.name, len(told.members)) == ("STABLE", members)


def create_topic(broker: RunningBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(SECONDS)


def send(broker: RunningBroker, topic: str, values: range) -> set[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    sent = {b"%d" % n for n in values}
    for n in values:
        producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return sent


def values_of(*members: Member) -> list[bytes]:
    return [value for member in members for _, value in member.records]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_of_members_that_leave_or_crash_are_reassigned(broker: RunningBroker, strategy: str) -> None:
    topic = group = f"members-{strategy}"
    create_topic(broker, topic)
    conf = {"partition.assignment.strategy": strategy}
    with ExitStack() as cleanup:
        members = []
        for count in (1, 2, 3):
            members.append(Member(broker, group, topic, **conf))
            cleanup.callback(members[-1].leave)
            until(lambda: share(*members), f"{count} members share the partitions")
        first = send(broker, topic, range(60))
        until(lambda: set(values_of(*members)) == first, "everything is consumed")

        taken = sum(len(member.taken) for member in members)
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, **CRASHING, **conf}
        arguments = [str(part) for pair in settings.items() for part in pair]
        fourth = subprocess.Popen([sys.executable, "-c", _CRASHING, topic, *arguments])
        cleanup.callback(fourth.wait)
        cleanup.callback(fourth.kill)
        # Members own fewer partitions also on the way there, so the group has to be stable before.
        until(lambda: stable_with(broker, group, 4), "the group is stable with four members")
        until(lambda: sum(len(member.owned) for member in members) in (4, 5), "the fourth member has its share")
        taken = sum(len(member.taken) for member in members) - taken
        if strategy == "range":
            assert taken == PARTITIONS, "eager members give everything back"
        else:
            assert taken <= 2, "cooperative members give back only what moves"
        fourth.kill()
        until(lambda: share(*members), "the partitions of the dead member are given to others")
        second = send(broker, topic, range(60, 120))
        until(lambda: set(values_of(*members)) == first | second, "everything is consumed")

        leaving = members.pop()
        leaving.leave()
        until(lambda: share(*members), "the partitions of the member that left are given to others")
        third = send(broker, topic, range(120, 180))
        until(lambda: third <= set(values_of(*members)), "everything is consumed")
        got = values_of(*members, leaving)
        assert set(got) == first | second | third
        assert [value for value in got if value in third] == sorted(third & set(got), key=got.index), "each once"
        assert [member.errors for member in (*members, leaving)] == [[], [], []]


def test_static_member_that_returns_triggers_no_rebalance(broker: RunningBroker) -> None:
    create_topic(broker, "static")
    with ExitStack() as cleanup:
        members = [Member(broker, "static", "static", **{"group.instance.id": name}) for name in ("a", "b")]
        until(lambda: share(*members), "both share the partitions")
        cleanup.callback(members[1].leave)
        owned, given, taken = set(members[0].owned), list(members[1].given), list(members[1].taken)
        members[0].leave()  # a static member stays in the group until its session ends
        again = Member(broker, "static", "static", **{"group.instance.id": "a"})
        cleanup.callback(again.leave)
        until(lambda: again.owned == owned, "it has its partitions again")
        sent = send(broker, "static", range(60))
        until(lambda: set(values_of(again, members[1])) == sent, "everything is consumed")
        assert (members[1].given, members[1].taken) == (given, taken), "the other member has not noticed"


def test_second_member_with_the_same_group_instance_id_fences_the_first(broker: RunningBroker) -> None:
    create_topic(broker, "fenced")
    with ExitStack() as cleanup:
        first = Member(broker, "fenced", "fenced", **{"group.instance.id": "a"})
        cleanup.callback(first.leave)
        until(lambda: share(first), "it has all partitions")
        second = Member(broker, "fenced", "fenced", **{"group.instance.id": "a"})
        cleanup.callback(second.leave)
        until(lambda: share(second), "the second has them")
        until(lambda: first.errors, "the first is told")
        assert set(first.errors) <= {"_FATAL", "FENCED_INSTANCE_ID"}
