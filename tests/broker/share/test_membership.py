"""Members of share groups: who gets which partitions, epochs, and a group that a real Kafka left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.coordinator.java_order import group_hash, topic_hash
from kafkalog_broker.coordinator.runtime import Timers
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.membership.group_records import TopicInfo
from kafkalog_broker.share.membership.heartbeat import Beaten, Heartbeat
from kafkalog_broker.share.membership.share_group import assign
from kafkalog_broker.share.membership.share_group_shard import ShareGroupShard
from kafkalog_broker.share.membership.state_partitions import GroupSettings
from tests.broker.share.helpers.lines_run import lines_run
from tests.searches import examples

RECORDS = json.loads(Path(__file__).with_name("kafka-4.3.0-records.json").read_text())
ORDERS = UUID("3e0a6dba-bc5b-4376-8bd2-a06421ecab66")


@dataclass(frozen=True)
class Topic:
    name: str
    id: UUID
    partitions: int


class Topics:
    def __init__(self, *topics: Topic) -> None:
        self.all = {topic.name: topic for topic in topics}

    def get(self, name: str) -> Topic | None:
        return self.all.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self.all.values() if topic.id == topic_id), None)


class Sessions(Timers):
    """Timers of members that do not run out by themselves."""

    def __init__(self) -> None:
        self.running: dict[Hashable, Callable[[], None]] = {}

    def schedule(self, key: Hashable, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms == 45_000
        self.running[key] = call

    def cancel(self, key: Hashable) -> None:
        self.running.pop(key, None)


class World:
    def __init__(self, topics: Topics, loaded: dict[bytes, bytes] | None = None, **properties: object) -> None:
        self.topics, self.sessions, self.written = topics, Sessions(), list[Record]()
        self.now = 1_000_000
        config = BrokerConfig.from_properties({"log.dirs": "/data", **properties})
        self.shard = ShareGroupShard(
            self.written.extend,
            self.sessions,
            topics,
            lambda group: GroupSettings.of(config, {}),
            lambda: self.now,
            None,
        )
        self.shard.load(loaded or {})

    def beat(self, member: str, epoch: int, *topics: str) -> Beaten:
        said = Heartbeat("g1", member, epoch, None, topics or None, "client", "/127.0.0.1")
        beaten = self.shard.heartbeat(said)
        self.shard.set_initialized("g1", beaten.initialize) if beaten.initialize else None
        return beaten

    def again(self) -> World:
        """A broker that reads what this one has written."""
        latest = dict(self.written)
        return World(self.topics, {key: value for key, value in latest.items() if value is not None})


def orders(partitions: int = 3) -> Topics:
    return Topics(Topic("orders", ORDERS, partitions))


def kafkas() -> dict[bytes, bytes]:
    latest = {}
    for found in (found for name, found in RECORDS.items() if name.startswith("__consumer")):
        for _, key, value in found:
            latest[bytes.fromhex(key)] = None if value is None else bytes.fromhex(value)
    return {key: value for key, value in latest.items() if value is not None}


def test_the_hash_of_topics_is_kafkas():
    assert group_hash([("orders", topic_hash("orders", ORDERS, 3, None))]) == 7797608333437758168
    assert group_hash([]) == 0


def settled(members: int) -> World:
    """All have what they are assigned."""
    world = World(orders(), None, **{"group.share.max.size": 1000, "group.share.assignment.interval.ms": 0})
    epochs = [world.beat(f"m{number}", 0, "orders").member_epoch for number in range(members)]
    for _ in range(3):
        epochs = [world.beat(f"m{number}", epoch).member_epoch for number, epoch in enumerate(epochs)]
    assert set(epochs) == {world.shard.groups["g1"].epoch}
    return world


def test_a_heartbeat_costs_as_much_however_many_members_there_are():
    costs = []
    for members in (20, 200):
        world = settled(members)
        epoch, written = world.shard.groups["g1"].epoch, len(world.written)
        costs.append(lines_run(partial(world.beat, "m3", epoch)))
        assert len(world.written) == written
    assert costs[0] == costs[1]


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.sets(st.sampled_from("abcd"), min_size=1)), max_size=20))
def test_topics_are_counted_as_members_come_change_and_go(changes):
    """changes: (member, its topics; None: it leaves)."""
    world, subscribed = World(orders()), {}
    for number, topics in changes:
        member = f"m{number}"
        if topics is not None:
            world.beat(member, 0, *topics)
            subscribed[member] = topics
        elif subscribed.pop(member, None) is not None:
            world.shard.leave("g1", member)
        for of in (world, world.again()):
            group = of.shard.groups.get("g1")
            if group is not None:
                assert set(group.topics()) == set().union(*subscribed.values())
                for one in ("m0", "m1", "nobody"):
                    others = set().union(*(mine for name, mine in subscribed.items() if name != one))
                    assert set(group.topics(but=one)) == others
                    assert set(group.topics(but=one, and_of=("a", "z"))) == others | {"a", "z"}


def test_a_member_is_assigned_what_has_state():
    world = World(orders())
    first = world.beat("m", 0, "orders")
    assert (first.member_epoch, first.assigned) == (2, {})
    assert first.initialize == {ORDERS: TopicInfo("orders", (0, 1, 2))}
    world.now += 1000
    second = world.beat("m", 2)
    assert (second.member_epoch, second.assigned) == (3, {ORDERS: (0, 1, 2)})
    third = world.beat("m", 3)
    assert (third.member_epoch, third.assigned, third.records) == (3, None, [])


def test_epochs_that_fence():
    world = World(orders())
    world.beat("m", 0, "orders")
    world.now += 1000
    world.beat("m", 2)
    world.beat("m", 2)  # its last answer was lost
    for epoch, code in ((4, ErrorCode.fenced_member_epoch), (1, ErrorCode.fenced_member_epoch)):
        with pytest.raises(BrokerError) as refused:
            world.beat("m", epoch)
        assert refused.value.code is code
    with pytest.raises(BrokerError) as refused:
        world.beat("n", 3)
    assert refused.value.code is ErrorCode.unknown_member_id


def test_a_member_that_is_not_heard_of_leaves():
    world = World(orders())
    world.beat("m", 0, "orders")
    world.sessions.running["g1", "m"]()
    assert world.shard.group("g1").state_name == "Empty"
    assert world.shard.group("g1").epoch == 3
    assert not world.sessions.running


def test_what_was_written_is_read_again():
    world = World(orders())
    for member in "ab":
        world.beat(member, 0, "orders")
    for _ in range(3):
        world.now += 1000
        for member in "ab":
            world.beat(member, world.shard.group("g1").members[member].current.member_epoch)
    again = world.again().shard.group("g1")
    for group in (again, world.shard.group("g1")):
        group.topics_seen, group.initializing_since = None, {}
    assert again == world.shard.group("g1")
    assert set(world.again().sessions.running) == {("g1", "a"), ("g1", "b")}


def test_a_topic_that_grows_is_assigned_anew():
    world = World(orders(2))
    world.beat("m", 0, "orders")
    world.now += 1000
    assert world.beat("m", 2).assigned == {ORDERS: (0, 1)}
    world.topics.all["orders"] = Topic("orders", ORDERS, 4)
    world.now += 1000
    grown = world.beat("m", 3)
    assert grown.initialize == {ORDERS: TopicInfo("orders", (2, 3))}
    world.now += 1000
    assert world.beat("m", grown.member_epoch).assigned == {ORDERS: (0, 1, 2, 3)}


def test_a_group_that_a_real_kafka_left_is_gone_on_with():
    world = World(orders(), kafkas())
    group = world.shard.group("g1")
    assert group.state_name == "Empty"
    assert group.state is not None
    assert group.state.initialized == {ORDERS: TopicInfo("orders", (0, 1, 2))}
    epoch = group.epoch
    world.now = 10**13
    joined = world.beat("m", 0, "orders")
    assert (joined.member_epoch, joined.assigned) == (epoch + 1, {ORDERS: (0, 1, 2)})


def test_a_full_group_takes_no_more():
    world = World(orders(), None, **{"group.share.max.size": 1})
    world.beat("m", 0, "orders")
    with pytest.raises(BrokerError) as refused:
        world.beat("n", 0, "orders")
    assert refused.value.code is ErrorCode.group_max_size_reached


def test_a_group_with_members_is_not_deleted():
    world = World(orders())
    world.beat("m", 0, "orders")
    for ask in (world.shard.delete, world.shard.all_with_state):
        with pytest.raises(BrokerError) as refused:
            ask("g1")
        assert refused.value.code is ErrorCode.non_empty_group
    world.shard.leave("g1", "m")
    assert world.shard.all_with_state("g1") == {ORDERS: TopicInfo("orders", (0, 1, 2))}
    world.shard.delete("g1")
    assert "g1" not in world.shard.groups
    assert "g1" not in world.again().shard.groups


TOPIC_IDS = [UUID(int=number * 7919) for number in range(1, 4)]


@settings(max_examples=examples(300))
@given(
    members=st.lists(st.text("abcdef0123", min_size=1, max_size=8), min_size=1, max_size=12, unique=True),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    data=st.data(),
)
def test_partitions_are_shared_out_evenly(members, sizes, data):
    """Every partition has a member, members of one subscription have about equally many, and no one nothing."""
    partitions = {topic: list(range(size)) for topic, size in zip(TOPIC_IDS, sizes, strict=False)}
    before: dict[str, dict[UUID, tuple[int, ...]]] = {}
    for _ in range(3):
        here = data.draw(st.lists(st.sampled_from(members), min_size=1, unique=True))
        given_ = assign({member: list(partitions) for member in here}, partitions, before)
        before = given_
        holders = Counter(
            (topic, index) for mine in given_.values() for topic, found in mine.items() for index in found
        )
        assert set(holders) == {(topic, index) for topic, indexes in partitions.items() for index in indexes}
        assert max(holders.values()) - min(holders.values()) <= 1
        loads = [sum(map(len, given_.get(member, {}).values())) for member in here]
        assert max(loads) - min(loads) <= 1
        assert min(loads) >= 1


def test_members_get_only_what_they_subscribe_to():
    one, two, three = TOPIC_IDS
    partitions = {one: [0, 1], two: [0, 1, 2], three: [0]}
    subscriptions = {"a": [one], "b": [one, two], "c": [two, three], "d": [three]}
    given_ = assign(subscriptions, partitions, {})
    for member, mine in given_.items():
        assert set(mine) <= set(subscriptions[member])
    for topic, indexes in partitions.items():
        assert {index for mine in given_.values() for index in mine.get(topic, ())} == set(indexes)
