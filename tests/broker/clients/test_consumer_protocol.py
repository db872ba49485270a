"""librdkafka with group.protocol=consumer (KIP-848): members join, leave, crash, return and change their protocol.

After each change every partition has exactly one owner, every record is processed, and no committed offset moves back.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.api.helpers.plain_entities import request_entity

pytestmark = pytest.mark.end_to_end

SECONDS = 120
"""For what takes a second on an idle machine."""
PROPERTIES = {
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 1000,  # also how long librdkafka waits for an answer to one
    "group.consumer.assignment.interval.ms": 50,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": False,
}
NEW = {"group.protocol": "consumer"}
CLASSIC = {
    "group.protocol": "classic", "session.timeout.ms": 45_000, "heartbeat.interval.ms": 500,
    "partition.assignment.strategy": "range",
}  # fmt: skip
# Not cooperative-sticky: librdkafka's leader puts members' user data into their assignments, and a group with such is
# not upgraded, as in Kafka.

_CRASHING = """
import sys
from confluent_kafka import Consumer
consumer = Consumer(dict(zip(sys.argv[2::2], sys.argv[3::2])))
consumer.subscribe([sys.argv[1]])
while True:
    if consumer.poll(0.1) is not None or consumer.assignment():
        print("assigned", flush=True)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(PROPERTIES) as running:
        yield running


class Member(threading.Thread):
    """A consumer in its own thread that commits the records it has processed. `owned`: its partitions, by topic,
    a set of its own after each change, as others look at it. `records`: values, in the order in which they came."""

    def __init__(self, broker: RunningBroker, group: str, topic: str, protocol: dict[str, Any], **conf: Any) -> None:
        super().__init__(daemon=True)
        self.owned: set[tuple[str, int]] = set()
        self.records: list[bytes] = []
        self.errors: list[str] = []
        self._stop_asked = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1000, **protocol, **conf,
            }
        )  # fmt: skip
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self.start()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(message.error().name())
                continue
            self.records.append(message.value())
            self.consumer.commit(message=message, asynchronous=True)
        self.consumer.close()

    def leave(self) -> None:
        self._stop_asked.set()
        self.join(SECONDS)
        assert not self.is_alive()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned | {(one.topic, one.partition) for one in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned - {(one.topic, one.partition) for one in partitions}

    _lost = _revoked


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def shared(members: list[Member], partitions: int) -> bool:
    """Return whether every partition has exactly one owner and every member has a partition."""
    owned = [one for member in members for one in member.owned]
    return len(owned) == len(set(owned)) == partitions and all(member.owned for member in members)


class Traffic:
    """Producer of numbered records for all partitions of a topic, with checks of what the members processed."""

    def __init__(self, broker: RunningBroker, topic: str, partitions: int, group: str) -> None:
        self._topic, self._partitions = topic, partitions
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._group = group
        self.sent: set[bytes] = set()
        self._committed: dict[int, int] = {}

    def send(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            for partition in range(self._partitions):
                value = b"%d" % len(self.sent)
                self._producer.produce(self._topic, value, partition=partition)
                self.sent.add(value)
        assert self._producer.flush(SECONDS) == 0

    def check_committed(self) -> None:
        """Assert that no committed offset has decreased."""
        wanted = ConsumerGroupTopicPartitions(
            self._group, [TopicPartition(self._topic, partition) for partition in range(self._partitions)]
        )
        (found,) = self._admin.list_consumer_group_offsets([wanted]).values()
        for one in found.result(SECONDS).topic_partitions:
            assert one.offset >= self._committed.get(one.partition, -1001)
            self._committed[one.partition] = one.offset

    def all_processed(self, members: list[Member]) -> bool:
        return {value for member in members for value in member.records} >= self.sent


def shorten_sessions(broker: RunningBroker, group: str) -> None:
    """Shorten the session timeout, so that a crashed member is removed from its group soon."""
    short = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "8000"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [short]}
    answer = broker.ask(request_entity(44, 1, {"resources": [resource], "validate_only": False}, {}))
    assert not answer.responses[0].error_code, answer


def test_partitions_of_members_that_leave_or_crash_are_reassigned(broker: RunningBroker) -> None:
    shorten_sessions(broker, "comings")
    traffic = Traffic(broker, "comings", 6, "comings")
    traffic.send(5)
    with ExitStack() as stack:
        everybody: list[Member] = []

        def join() -> Member:
            member = Member(broker, "comings", "comings", NEW)
            stack.callback(member.leave)
            everybody.append(member)
            return member

        members = [join()]
        until(lambda: shared(members, 6), lambda: [m.owned for m in members])
        for _ in range(2):
            members.append(join())
            traffic.send()
            until(lambda: shared(members, 6), lambda: [m.owned for m in members])
            traffic.check_committed()
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "comings", "group.protocol": "consumer"}
        words = [word for pair in settings.items() for word in pair]
        process = subprocess.Popen([sys.executable, "-c", _CRASHING, "comings", *words], stdout=subprocess.PIPE)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        stack.enter_context(process.stdout)
        assert process.stdout.readline() == b"assigned\n"
        until(lambda: sum(len(m.owned) for m in members) < 6, lambda: [m.owned for m in members])
        process.kill()  # its session ends, and its partitions go back
        until(lambda: shared(members, 6), lambda: [m.owned for m in members])
        members.pop(0).leave()
        traffic.send()
        until(lambda: shared(members, 6), lambda: [m.owned for m in members])
        until(lambda: traffic.all_processed(everybody), lambda: len(traffic.sent))
        traffic.check_committed()
        assert [m.errors for m in everybody] == [[]] * len(everybody)


def test_static_member_that_returns_keeps_its_partitions(broker: RunningBroker) -> None:
    traffic = Traffic(broker, "statics", 4, "statics")
    with ExitStack() as stack:
        members = [Member(broker, "statics", "statics", NEW, **{"group.instance.id": f"i{n}"}) for n in range(2)]
        for member in members:
            stack.callback(member.leave)
        until(lambda: shared(members, 4), lambda: [m.owned for m in members])
        before = set(members[0].owned)
        members[0].leave()  # librdkafka says that it will be back
        traffic.send()
        again = Member(broker, "statics", "statics", NEW, **{"group.instance.id": "i0"})
        stack.callback(again.leave)
        until(lambda: again.owned == before, lambda: (again.owned, before))
        until(lambda: traffic.all_processed([members[1], again]), lambda: len(traffic.sent))


def test_subscription_by_regular_expression_is_resolved_by_the_broker(broker: RunningBroker) -> None:
    first = Traffic(broker, "events-one", 2, "expressions")
    Traffic(broker, "other-events", 1, "expressions")
    member = Member(broker, "expressions", "^events-.*", NEW)
    try:
        until(lambda: member.owned == {("events-one", 0), ("events-one", 1)}, lambda: member.owned)
        first.send()
        until(lambda: first.all_processed([member]), lambda: member.records)
    finally:
        member.leave()


@pytest.mark.parametrize("forth", [True, False], ids=["to the consumer protocol", "and back"])
def test_group_changes_its_protocol_during_consumption(broker: RunningBroker, forth: bool) -> None:
    name = "forth" if forth else "back"
    before, after = (CLASSIC, NEW) if forth else (NEW, CLASSIC)
    traffic = Traffic(broker, name, 6, name)
    with ExitStack() as stack:
        everybody: list[Member] = []

        def join(protocol: dict[str, Any]) -> Member:
            member = Member(broker, name, name, protocol)
            stack.callback(member.leave)
            everybody.append(member)
            return member

        members = [join(before) for _ in range(3)]
        traffic.send(3)
        until(lambda: shared(members, 6), lambda: [m.owned for m in members])
        for place in range(3):
            members[place].leave()
            members[place] = join(after)
            traffic.send(3)
            until(lambda: shared(members, 6), lambda: [m.owned for m in members])
            traffic.check_committed()
        until(lambda: traffic.all_processed(everybody), lambda: len(traffic.sent))
        traffic.check_committed()
        kind = ConsumerGroupType.CONSUMER if forth else ConsumerGroupType.CLASSIC
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        listed = admin.list_consumer_groups(types={kind}).result(SECONDS)
        assert name in [group.group_id for group in listed.valid], listed.errors


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rolling_restart_of_twenty_members_keeps_one_owner_for_each_partition(broker: RunningBroker) -> None:
    traffic = Traffic(broker, "rolling", 100, "rolling")
    with ExitStack() as stack:
        everybody: list[Member] = []

        def join() -> Member:
            member = Member(broker, "rolling", "rolling", NEW)
            stack.callback(member.leave)
            everybody.append(member)
            return member

        members = [join() for _ in range(20)]
        until(lambda: shared(members, 100), lambda: [len(m.owned) for m in members])
        for place in range(20):
            traffic.send()
            members[place].leave()
            members[place] = join()
        until(lambda: shared(members, 100), lambda: [len(m.owned) for m in members])
        assert {len(member.owned) for member in members} == {5}
        until(lambda: traffic.all_processed(everybody), lambda: len(traffic.sent))
        traffic.check_committed()
