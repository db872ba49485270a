"""Consumer groups over virtual time: whatever members do, crash and restart, no partition ever has two owners."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import CommitRequest, CommittedPartition, FetchedTopic
from kafkalog_broker.groups.consumer.consumer_group_manager import (
    ConsumerHeartbeatRequest,
    DescribedConsumerGroup,
    DescribedTopic,
)
from kafkalog_broker.groups.modern.group_context import TopicsView
from kafkalog_broker.groups.modern.group_manager import HeartbeatResponse
from kafkalog_broker.storage.topic_registry import Topic
from tests.broker.groups.helpers.commits import commit_at_once
from tests.broker.groups.helpers.virtual_time import World

NAMES = ("a", "b", "c", "d")
TIMEOUT_MS, SESSION_MS = 30_000, 45_000


class Topics(TopicsView):
    """Topics that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self._version = self._created_version = 1
        self.topics: dict[str, Topic] = {}
        self.set("orders", 6)
        self.set("clicks", 3)

    def set(self, name: str, partitions: int) -> None:
        known = self.topics.get(name)
        topic_id = UUID(int=100 + len(self.topics)) if known is None else known.id
        self.topics[name] = Topic(name, topic_id, partitions)
        self._version += 1
        if known is None:
            self._created_version = self._version

    @property
    def version(self) -> int:
        return self._version

    @property
    def created_version(self) -> int:
        return self._created_version

    def by_name(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    def names(self) -> list[str]:
        return list(self.topics)


class Groups(World):
    """A World with topics, in which assignments are made at once."""

    def __init__(self, **config: int) -> None:
        self.topics = Topics()
        super().__init__(group_consumer_assignment_interval_ms=0, **config)

    def start(self) -> Any:
        coordinator = super().start()
        coordinator.context.topics = self.topics
        return coordinator

    def heartbeat(self, member: str, epoch: int, **how: Any) -> HeartbeatResponse:
        return self.coordinator.consumer_heartbeat(ConsumerHeartbeatRequest("g", member, epoch, **how))

    def join(self, member: str, *topics: str, **how: Any) -> HeartbeatResponse:
        full: dict[str, Any] = {"rebalance_timeout_ms": TIMEOUT_MS, "topics": topics, "owned": {}}
        return self.heartbeat(member, 0, **(full | how))


def test_a_member_that_gives_nothing_up_is_put_out_after_its_rebalance_timeout() -> None:
    world = Groups()
    world.join("a", "orders")
    world.join("b", "orders")
    world.heartbeat("a", 2)
    world.time.advance(TIMEOUT_MS - 1)
    assert world.heartbeat("a", 2).member_epoch == 2
    world.time.advance(1)
    with pytest.raises(BrokerError) as refused:
        world.heartbeat("a", 2)
    assert refused.value.code is ErrorCode.unknown_member_id
    assert sum(map(len, (world.heartbeat("b", 3).assignment or {}).values())) == 6


def test_a_member_that_is_not_heard_of_is_put_out_after_its_session() -> None:
    world = Groups()
    world.join("a", "orders")
    world.time.advance(SESSION_MS - 1)
    world.heartbeat("a", 2)
    world.time.advance(SESSION_MS)
    assert world.coordinator.describe_consumer_group("g").state == "Empty"


def test_a_write_that_fails_changes_nothing() -> None:
    world = Groups()
    world.join("a", "orders")
    before = world.coordinator.describe_consumer_group("g")
    world.log.failure = ErrorCode.not_leader_or_follower
    with pytest.raises(BrokerError):
        world.join("b", "orders")
    with pytest.raises(BrokerError):
        world.heartbeat("a", -1)
    world.time.advance(SESSION_MS)  # its session ends, which cannot be written either
    assert world.coordinator.describe_consumer_group("g") == before
    world.log.failure = None
    world.time.advance(500)
    assert world.coordinator.describe_consumer_group("g").members == ()


def test_a_restart_finds_the_group_and_gives_everybody_a_session() -> None:
    world = Groups()
    world.join("a", "orders")
    world.join("b", "orders")
    before = _described(world)
    world.crash()
    assert _described(world) == before
    world.time.advance(SESSION_MS - 1)
    assert len(world.coordinator.describe_consumer_group("g").members) == 2
    world.time.advance(1)
    assert world.coordinator.describe_consumer_group("g").members == ()


def test_a_deleted_group_leaves_nothing() -> None:
    world = Groups()
    world.join("a", "orders")
    world.heartbeat("a", -1)
    assert world.coordinator.delete("g") is ErrorCode.none
    world.crash()
    assert world.coordinator.describe_consumer_group("g").error is ErrorCode.group_id_not_found
    assert world.coordinator.list_groups() == []


def test_an_assignment_waits_for_its_interval() -> None:
    world = Groups()
    world.coordinator.context.config = dataclasses.replace(world.config, group_consumer_assignment_interval_ms=1000)
    world.time.advance(10)
    assert world.join("a", "orders").member_epoch == 2
    assert world.join("b", "orders").member_epoch == 2
    assert world.coordinator.describe_consumer_group("g").state == "Assigning"
    world.time.advance(1000)
    assert world.heartbeat("b", 2).member_epoch == 3


def test_the_assignment_of_a_large_group_is_made_away_from_the_requests() -> None:
    """Members go on with what they have; who leaves meanwhile gets nothing, and a failure begins again."""
    world, waiting = Groups(), []
    world.coordinator.context.background = lambda compute, done: waiting.append((compute, done))
    world.topics.set("orders", 4000)
    assert world.join("a", "orders").assignment == {}
    assert world.join("b", "orders").member_epoch == 1
    ((compute, done),) = waiting
    world.heartbeat("b", -1)
    waiting.clear()
    done(RuntimeError("the thread has failed"))
    assert world.heartbeat("a", 1).assignment is None
    ((compute, done),) = waiting
    assert world.join("c", "orders").member_epoch == 1
    done(compute())
    answer = world.heartbeat("a", 1)
    assert answer.member_epoch == 4
    assert sum(map(len, (answer.assignment or {}).values())) == 4000
    compute, done = waiting[-1]
    done(compute())
    assert world.heartbeat("c", 1).member_epoch == 5
    assert {len(one.target[0].partitions) for one in world.coordinator.describe_consumer_group("g").members} == {2000}


def test_offsets_of_topics_that_nobody_subscribes_to_expire() -> None:
    world = Groups(offsets_retention_minutes=1)
    world.join("a", "orders")
    parts = tuple(CommittedPartition(topic, 0, 5, topic_id=None) for topic in ("orders", "clicks"))
    assert commit_at_once(world.coordinator, CommitRequest("g", parts, "a", 2)) == [ErrorCode.none] * 2
    for _ in range(3):
        world.time.advance(SESSION_MS - 1)
        world.heartbeat("a", 2)
    world.time.advance(world.config.offsets_retention_check_interval_ms - 2 * SESSION_MS)
    world.join("a", "orders")
    world.coordinator.tick()
    found = world.coordinator.fetch("g", [FetchedTopic("orders", (0,)), FetchedTopic("clicks", (0,))])
    assert [offsets[0].offset for _, offsets in found] == [5, -1]


def _described(world: Groups) -> DescribedConsumerGroup:
    """Members have no order."""
    found = world.coordinator.describe_consumer_group("g")
    return dataclasses.replace(found, members=tuple(sorted(found.members, key=lambda member: member.member_id)))


def _sets(topics: Iterable[DescribedTopic]) -> dict[str, set[int]]:
    return {topic.name: set(topic.partitions) for topic in topics}


class Machine(RuleBasedStateMachine):
    """Members that do what a consumer does, one step at a time, and a broker that may be killed between two steps.
    `held`: what each believes to have: what it was told, until it has said that it gave something up."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Groups()
        self.epochs: dict[str, int] = {}
        self.held: dict[str, dict[UUID, set[int]]] = {}
        self.told: dict[str, dict[UUID, set[int]]] = {}
        self.codes: set[ErrorCode] = set()

    def _answered(self, member: str, answer: HeartbeatResponse) -> None:
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.told[member] = {topic: set(parts) for topic, parts in answer.assignment.items()}
            held = self.held.setdefault(member, {})
            for topic, parts in self.told[member].items():
                held.setdefault(topic, set()).update(parts)

    def _gone(self, member: str) -> None:
        for of in (self.epochs, self.held, self.told):
            of.pop(member, None)

    @rule(member=st.sampled_from(NAMES), topics=st.sets(st.sampled_from(("orders", "clicks", "none")), min_size=1))
    def joins(self, member: str, topics: set[str]) -> None:
        self._gone(member)  # whoever joins has given up what it had
        self._answered(member, self.world.join(member, *sorted(topics)))

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), gives_up=st.booleans())
    def goes_on(self, data: Any, gives_up: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        if gives_up:
            self.held[member] = {topic: set(parts) for topic, parts in self.told.get(member, {}).items() if parts}
        try:
            answer = self.world.heartbeat(member, self.epochs[member], owned=self.held.get(member, {}))
        except BrokerError as error:
            self.codes.add(error.code)
            self._gone(member)
        else:
            self._answered(member, answer)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def leaves(self, data: Any) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        self._gone(member)
        try:
            self.world.heartbeat(member, -1)
        except BrokerError as error:
            self.codes.add(error.code)

    @rule(ms=st.sampled_from((10, 1_000, TIMEOUT_MS, SESSION_MS)))
    def time_passes(self, ms: int) -> None:
        self.world.time.advance(ms)
        described = self.world.coordinator.describe_consumer_group("g")
        for member in set(self.epochs) - {one.member_id for one in described.members}:
            self._gone(member)  # a client gives everything up when its session is over

    @rule(more=st.integers(1, 3))
    def topic_grows(self, more: int) -> None:
        self.world.topics.set("orders", self.world.topics.topics["orders"].partitions + more)

    @rule()
    def broker_crashes(self) -> None:
        before = _described(self.world)
        self.world.crash()
        assert _described(self.world) == before

    @invariant()
    def only_who_was_put_out_is_refused(self) -> None:
        put_out = {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.group_id_not_found}
        assert self.codes <= put_out

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [(topic, part) for held in self.held.values() for topic, parts in held.items() for part in parts]
        assert len(owned) == len(set(owned)), self.held

    def teardown(self) -> None:
        """Left alone, all members get what is theirs."""
        for _ in range(20):
            for member in sorted(self.epochs):
                self.held[member] = {t: set(p) for t, p in self.told.get(member, {}).items() if p}
                try:
                    self._answered(member, self.world.heartbeat(member, self.epochs[member], owned=self.held[member]))
                except BrokerError:
                    self._gone(member)
        described = self.world.coordinator.describe_consumer_group("g")
        assert described.state in ("Stable", "Empty", "")
        for one in described.members:
            assert _sets(one.assignment) == _sets(one.target)


Machine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase
