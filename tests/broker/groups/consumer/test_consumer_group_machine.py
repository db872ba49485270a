"""Consumer groups over virtual time: whatever members do, crash and restart, no partition ever has two owners."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group import ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_heartbeat import ConsumerHeartbeatRequest
from kafkalog_broker.groups.modern.group_records import Partitions
from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse
from kafkalog_broker.groups.offset_requests import CommitRequest, CommittedPartition
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.storage.topic_registry_file import RegistryState
from tests.broker.groups.helpers.commits import commit_at_once
from tests.broker.groups.helpers.virtual_time import World

NAMES = ("a", "b", "c", "d")
TIMEOUT_MS, SESSION_MS = 30_000, 45_000


class Topics(TopicRegistry):
    """Topics that can be changed, on no disk."""

    def __init__(self, *topics: Topic) -> None:
        super().__init__([])
        self.put(*topics)

    def put(self, *topics: Topic) -> None:
        generation = self.generation + 1
        if any(topic.name not in self for topic in topics):
            self.created_generation = generation
        self._use({**self.topics, **{topic.name: topic for topic in topics}})

    def set(self, name: str, partitions: int) -> None:
        known = self.get(name)
        self.put(Topic(name, UUID(int=100 + len(self)) if known is None else known.id, partitions))

    def remove(self, name: str) -> None:
        self._use({known: topic for known, topic in self.topics.items() if known != name})

    def _use(self, topics: dict[str, Topic]) -> None:
        self._state = RegistryState(self.generation + 1, topics)
        self._by_id = {topic.id: topic for topic in topics.values()}


class Described(NamedTuple):
    """A group at a moment. members, target: by member id."""

    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, ConsumerMember] = MappingProxyType({})
    target: Mapping[str, Partitions] = MappingProxyType({})


class Groups(World):
    """A World with topics, in which assignments are made at once."""

    def __init__(self, **config: int) -> None:
        self.topics = Topics(Topic("orders", UUID(int=100), 6), Topic("clicks", UUID(int=101), 3))
        super().__init__(group_consumer_assignment_interval_ms=0, **config)

    def start(self) -> Any:
        coordinator = super().start()
        coordinator.context.topics = self.topics
        return coordinator

    def described(self) -> Described:
        group = self.coordinator.consumer_groups("g").groups.get("g")
        if group is None:
            return Described()
        state = group.state.value
        return Described(state, group.epoch, group.assignment_epoch, dict(group.members), dict(group.target))

    def heartbeat(self, member: str, epoch: int, **how: Any) -> HeartbeatResponse:
        return self.coordinator.consumer_group_heartbeat(ConsumerHeartbeatRequest("g", member, epoch, **how))

    def join(self, member: str, *topics: str, **how: Any) -> HeartbeatResponse:
        full: dict[str, Any] = {"rebalance_timeout_ms": TIMEOUT_MS, "topics": topics, "owned": {}}
        return self.heartbeat(member, 0, **(full | how))


def test_member_that_revokes_nothing_is_removed_after_its_rebalance_timeout() -> None:
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


def test_member_without_heartbeats_is_removed_after_its_session_timeout() -> None:
    world = Groups()
    world.join("a", "orders")
    world.time.advance(SESSION_MS - 1)
    world.heartbeat("a", 2)
    world.time.advance(SESSION_MS)
    assert world.described().state == "Empty"


def test_failed_append_leaves_the_consumer_group_unchanged() -> None:
    world = Groups()
    world.join("a", "orders")
    before = world.described()
    world.log.failure = ErrorCode.not_leader_or_follower
    with pytest.raises(BrokerError):
        world.join("b", "orders")
    with pytest.raises(BrokerError):
        world.heartbeat("a", -1)
    world.time.advance(SESSION_MS)  # its session ends, which cannot be written either
    assert world.described() == before
    world.log.failure = None
    world.time.advance(500)
    assert world.described().members == {}


def test_restart_loads_the_group_and_starts_a_session_for_each_member() -> None:
    world = Groups()
    world.join("a", "orders")
    world.join("b", "orders")
    before = world.described()
    world.crash()
    assert world.described() == before
    world.time.advance(SESSION_MS - 1)
    assert len(world.described().members) == 2
    world.time.advance(1)
    assert world.described().members == {}


def test_deleted_group_leaves_no_records() -> None:
    world = Groups()
    world.join("a", "orders")
    world.heartbeat("a", -1)
    world.coordinator.shard("g").delete("g")
    world.crash()
    assert world.described() == Described()
    assert world.coordinator.list_groups() == []


def test_assignment_is_delayed_until_its_interval_has_passed() -> None:
    world = Groups()
    waiting = world.config.with_dynamic({"group.consumer.assignment.interval.ms": "1000"}, {})
    world.coordinator.context.config = waiting
    world.time.advance(10)
    assert world.join("a", "orders").member_epoch == 2
    assert world.join("b", "orders").member_epoch == 2
    assert world.described().state == "Assigning"
    world.time.advance(1000)
    assert world.heartbeat("b", 2).member_epoch == 3


def test_assignment_of_a_large_group_is_computed_in_the_background() -> None:
    """Members keep their assignment meanwhile, a member that leaves gets none, and a failed computation is retried."""
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
    assert {len(target[world.topics.topics["orders"].id]) for target in world.described().target.values()} == {2000}


def test_offsets_of_topics_without_a_subscription_expire() -> None:
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
    offsets = world.coordinator.shard("g").offsets
    found = [offsets.fetch("g", topic, (0,))[0].committed_offset for topic in ("orders", "clicks")]
    assert found == [5, -1]


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
        described = self.world.described()
        for member in set(self.epochs) - set(described.members):
            self._gone(member)  # a client gives everything up when its session is over

    @rule(more=st.integers(1, 3))
    def topic_grows(self, more: int) -> None:
        self.world.topics.set("orders", self.world.topics.topics["orders"].partitions + more)

    @rule()
    def broker_crashes(self) -> None:
        before = self.world.described()
        self.world.crash()
        assert self.world.described() == before

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
        described = self.world.described()
        assert described.state in ("Stable", "Empty", "")
        for member_id, seen in described.members.items():
            target = described.target.get(member_id, {}).items()
            assert {t: set(p) for t, p in seen.assigned.items()} == {t: set(p) for t, p in target if p}


Machine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase
