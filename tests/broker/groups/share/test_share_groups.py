"""Share groups: assignments, member epochs, and a group that a real Kafka wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.assignors.group_spec import AssignedMember, Assignments, GroupSpec
from kafkalog_broker.groups.assignors.simple_assignor import assign_simple
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse
from kafkalog_broker.groups.modern.metadata_hash import group_hash, topic_hash
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_group_heartbeat import ShareHeartbeatRequest
from kafkalog_broker.storage.topic import Topic
from tests.broker.groups.consumer.test_consumer_group_machine import Topics
from tests.broker.groups.helpers.virtual_time import World
from tests.broker.share.helpers.lines_run import lines_run
from tests.searches import examples

RECORDS = json.loads((Path(__file__).parents[2] / "share/kafka-4.3.0-records.json").read_text())
ORDERS = UUID("3e0a6dba-bc5b-4376-8bd2-a06421ecab66")


class ShareWorld(World):
    """Share groups with topics, in virtual time. `initialized`: what each heartbeat has begun the state of, which is
    there at once."""

    def __init__(self, topics: Topics, loaded: Sequence[Record] = (), **properties: int) -> None:
        self.topics, self.loaded = topics, loaded
        self.initialized: list[Mapping[UUID, SharedTopic]] = []
        self.from_start: list[bool] = []
        super().__init__(**properties)

    def start(self) -> GroupCoordinator:
        coordinator = super().start()
        coordinator.context.topics = self.topics
        coordinator.context.initialize = self._initialize
        if self.loaded:
            self.log.append(0, self.loaded)
            self.loaded = ()
        return coordinator

    def _initialize(self, group_id: str, epoch: int, topics: Mapping[UUID, SharedTopic], from_start: bool) -> None:
        self.initialized.append(topics)
        self.from_start.append(from_start)
        self.coordinator.initialize_share_group_state(group_id, topics)

    @property
    def share(self) -> ModernGroups[ShareGroup]:
        return self.coordinator.share_groups("g1")

    @property
    def share_group(self) -> ShareGroup:
        return self.share.group("g1")

    def beat(self, member: str, epoch: int, *topics: str) -> HeartbeatResponse:
        self.initialized.clear()
        self.from_start.clear()
        request = ShareHeartbeatRequest(
            "g1", member, epoch, topics=topics or None, client_id="client", client_host="/127.0.0.1"
        )
        return self.coordinator.share_group_heartbeat(request)

    def goes(self, member: str) -> None:
        self.beat(member, -1)


def orders(partitions: int = 3) -> Topics:
    return Topics(Topic("orders", ORDERS, partitions))


def kafkas() -> list[Record]:
    return [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for partition, written in RECORDS.items()
        if partition.startswith("__consumer")
        for _, key, value in written
    ]


def test_topic_hash_equals_that_of_kafka():
    assert group_hash([("orders", topic_hash(Topic("orders", ORDERS, 3), None))]) == 7797608333437758168
    assert group_hash([]) == 0


def settled(members: int) -> ShareWorld:
    """All have what they are assigned."""
    world = ShareWorld(orders(), group_share_max_size=1000, group_share_assignment_interval_ms=0)
    epochs = [world.beat(f"m{number}", 0, "orders").member_epoch for number in range(members)]
    for _ in range(3):
        epochs = [world.beat(f"m{number}", epoch).member_epoch for number, epoch in enumerate(epochs)]
    assert set(epochs) == {world.share_group.epoch}
    return world


def test_cost_of_a_heartbeat_does_not_depend_on_the_number_of_members():
    costs = []
    for members in (20, 200):
        world = settled(members)
        epoch, written = world.share_group.epoch, len(world.log.batches[0])
        costs.append(lines_run(partial(world.beat, "m3", epoch), "/kafkalog_broker/"))
        assert len(world.log.batches[0]) == written
    assert costs[0] == costs[1] > 50


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.sets(st.sampled_from("abcd"), min_size=1)), max_size=20))
def test_subscribed_topics_follow_members_that_join_change_and_leave(changes):
    """changes: (member, its topics; None: it leaves)."""
    world, subscribed = ShareWorld(orders()), {}
    for number, topics in changes:
        member = f"m{number}"
        if topics is not None:
            world.beat(member, 0, *topics)
            subscribed[member] = topics
        elif subscribed.pop(member, None) is not None:
            world.goes(member)
        for _ in range(2):
            group = world.share.groups.get("g1")
            if group is not None:
                assert set(group.subscribed_topics) == set().union(*subscribed.values())
                for one in subscribed:
                    others = set().union(*(mine for name, mine in subscribed.items() if name != one))
                    assert group.subscribed_topics_after([group.members[one]]) == others
            world.crash()


def test_member_is_assigned_initialized_partitions_only():
    world = ShareWorld(orders())
    first = world.beat("m", 0, "orders")
    assert (first.member_epoch, first.assignment) == (2, {})
    assert world.initialized == [{ORDERS: SharedTopic("orders", (0, 1, 2))}]
    world.time.advance(1000)
    second = world.beat("m", 2)
    assert (second.member_epoch, second.assignment) == (3, {ORDERS: (0, 1, 2)})
    written = len(world.log.batches[0])
    third = world.beat("m", 3)
    assert (third.member_epoch, third.assignment, len(world.log.batches[0])) == (3, None, written)


def test_heartbeat_with_another_epoch_is_fenced():
    world = ShareWorld(orders())
    world.beat("m", 0, "orders")
    world.time.advance(1000)
    world.beat("m", 2)
    world.beat("m", 2)  # its last answer was lost
    for epoch, code in ((4, ErrorCode.fenced_member_epoch), (1, ErrorCode.fenced_member_epoch)):
        with pytest.raises(BrokerError) as refused:
            world.beat("m", epoch)
        assert refused.value.code is code
    with pytest.raises(BrokerError) as refused:
        world.beat("n", 3)
    assert refused.value.code is ErrorCode.unknown_member_id


def test_member_without_heartbeats_is_removed():
    world = ShareWorld(orders())
    world.beat("m", 0, "orders")
    world.time.advance(44_999)
    assert world.share_group.state.value == "Stable"
    world.time.advance(1)
    assert (world.share_group.state.value, world.share_group.epoch) == ("Empty", 3)
    assert not world.time.waiting


def test_removal_that_cannot_be_written_is_tried_again():
    world = ShareWorld(orders())
    world.beat("m", 0, "orders")
    world.log.failure = ErrorCode.not_leader_or_follower
    with pytest.raises(BrokerError) as refused:
        world.beat("n", 0, "orders")
    assert refused.value.code is ErrorCode.not_coordinator
    world.time.advance(45_000)
    assert list(world.share_group.members) == ["m"]
    world.log.failure = None
    world.time.advance(500)
    assert not world.share_group.members


def test_group_is_the_same_after_a_restart():
    world = ShareWorld(orders())
    for member in "ab":
        world.beat(member, 0, "orders")
    for _ in range(3):
        world.time.advance(1000)
        for member in "ab":
            world.beat(member, world.share_group.members[member].epoch)
    before = vars(world.share_group) | {"hashed_topics_generation": -1, "_has_all_assigned": None}
    world.crash()
    assert vars(world.share_group) == before
    assert len(before["members"]) == world.time.waiting == 2


def test_added_partitions_are_initialized_and_assigned():
    world = ShareWorld(orders(2))
    world.beat("m", 0, "orders")
    world.time.advance(1000)
    assert world.beat("m", 2).assignment == {ORDERS: (0, 1)}
    world.topics.set("orders", 4)
    world.time.advance(1000)
    grown = world.beat("m", 3)
    assert world.initialized == [{ORDERS: SharedTopic("orders", (2, 3))}]
    world.time.advance(1000)
    assert world.beat("m", grown.member_epoch).assignment == {ORDERS: (0, 1, 2, 3)}


def test_partitions_added_to_a_topic_that_a_share_group_reads_start_at_offset_0():
    """Records of a new partition are not skipped by share.auto.offset.reset=latest (KAFKA-20742)."""
    world = ShareWorld(orders(2))
    joined = world.beat("m", 0, "orders")
    assert world.from_start == [False]
    world.topics.set("orders", 4)
    world.beat("m", joined.member_epoch)
    assert (world.initialized, world.from_start) == ([{ORDERS: SharedTopic("orders", (2, 3))}], [True])


def test_first_partitions_of_a_topic_that_are_initialized_again_start_where_the_reset_policy_says():
    world, begun = ShareWorld(orders(2)), []
    world.coordinator.context.initialize = lambda group_id, epoch, topics, from_start: begun.append(
        (topics[ORDERS].partitions, from_start)
    )
    joined = world.beat("m", 0, "orders")
    world.topics.set("orders", 3)
    world.time.advance(world.coordinator.context.config.group_share_initialize_retry_interval_ms)
    world.beat("m", joined.member_epoch)
    assert begun == [((0, 1), False), ((0, 1), False), ((2,), True)]


def test_assignment_of_a_large_share_group_is_computed_in_the_background():
    world, waiting = ShareWorld(orders(4000)), []
    world.coordinator.context.background = lambda compute, done: waiting.append((compute, done))
    for epoch in (0, 1):
        world.beat("m", epoch, "orders")
    for compute, done in waiting[:1]:
        done(compute())
    assert world.beat("m", 1).member_epoch == 2
    world.time.advance(1000)
    world.beat("m", 2)
    compute, done = waiting[-1]
    done(compute())
    answer = world.beat("m", 2)
    assert (answer.member_epoch, answer.assignment) == (3, {ORDERS: tuple(range(4000))})


def test_group_that_a_real_kafka_wrote_is_continued():
    world = ShareWorld(orders(), kafkas())
    group = world.share_group
    assert group.state.value == "Empty"
    assert group.partitions.initialized == {ORDERS: SharedTopic("orders", (0, 1, 2))}
    epoch = group.epoch
    world.time.clock.set(10**13)
    joined = world.beat("m", 0, "orders")
    assert (joined.member_epoch, joined.assignment) == (epoch + 1, {ORDERS: (0, 1, 2)})


def test_full_share_group_refuses_a_new_member():
    world = ShareWorld(orders(), group_share_max_size=1)
    world.beat("m", 0, "orders")
    with pytest.raises(BrokerError) as refused:
        world.beat("n", 0, "orders")
    assert refused.value.code is ErrorCode.group_max_size_reached


def test_share_group_with_members_is_not_deleted():
    world = ShareWorld(orders())
    world.beat("m", 0, "orders")
    for ask in (world.coordinator.delete_share_group, world.coordinator.initiate_delete_share_group):
        with pytest.raises(BrokerError) as refused:
            ask("g1")
        assert refused.value.code is ErrorCode.non_empty_group
    world.goes("m")
    assert world.coordinator.initiate_delete_share_group("g1") == {ORDERS: SharedTopic("orders", (0, 1, 2))}
    world.coordinator.delete_share_group("g1")
    assert "g1" not in world.share.groups
    world.crash()
    assert "g1" not in world.share.groups


def assign(
    subscriptions: Mapping[str, Collection[UUID]], partitions: Mapping[UUID, Sequence[int]], before: Assignments
) -> Assignments:
    members = {name: AssignedMember(topics, before.get(name, {})) for name, topics in sorted(subscriptions.items())}
    homogeneous = len(set(map(frozenset, subscriptions.values()))) == 1
    return assign_simple(GroupSpec(members, homogeneous, lambda topic: partitions.get(topic, ())))


TOPIC_IDS = [UUID(int=number * 7919) for number in range(1, 4)]


@settings(max_examples=examples(300))
@given(
    members=st.lists(st.text("abcdef0123", min_size=1, max_size=8), min_size=1, max_size=12, unique=True),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    data=st.data(),
)
def test_simple_assignor_distributes_partitions_evenly(members, sizes, data):
    """Every partition has a member, members of one subscription have about equally many, and no one nothing."""
    partitions = {topic: list(range(size)) for topic, size in zip(TOPIC_IDS, sizes, strict=False)}
    before: Assignments = {}
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


def test_share_members_are_assigned_only_subscribed_topics():
    one, two, three = TOPIC_IDS
    partitions = {one: [0, 1], two: [0, 1, 2], three: [0]}
    subscriptions = {"a": [one], "b": [one, two], "c": [two, three], "d": [three]}
    given_ = assign(subscriptions, partitions, {})
    for member, mine in given_.items():
        assert set(mine) <= set(subscriptions[member])
    for topic, indexes in partitions.items():
        assert {index for mine in given_.values() for index in mine.get(topic, ())} == set(indexes)
