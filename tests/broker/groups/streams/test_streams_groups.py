"""Members of streams groups come, go on, go and are cut off, and the coordinator crashes: no two have an active task at
the same time, and in the end each task has its owner."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.group_coordinator import GroupCoordinator
from kafkalog_broker.groups.modern.group_records import Endpoint, TaskRole, TasksKey
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.groups.streams import streams_endpoints
from kafkalog_broker.groups.streams.streams_group import StreamsGroup
from kafkalog_broker.groups.streams.streams_group_heartbeat import StreamsHeartbeatResponse
from kafkalog_broker.groups.streams.streams_group_status import StatusCode
from kafkalog_broker.groups.streams.streams_heartbeat_request import StreamsHeartbeatRequest
from kafkalog_broker.groups.streams.topology import Subtopology, TopicInfo, Topology
from kafkalog_broker.storage.topic import Topic
from tests.broker.groups.consumer.test_consumer_group_machine import Topics
from tests.broker.groups.helpers.virtual_time import World
from tests.searches import examples

GROUP, TASKS = "app", 6
STORE = Subtopology("0", ("orders",), (), (TopicInfo("store", 0, 0, ()),), (), (), ())
TOPOLOGY = Topology(0, (STORE,))
NO_TASKS = dict.fromkeys(TaskRole, 0)


class StreamsWorld(World):
    """Streams groups with topics, in virtual time."""

    def __init__(self, **properties: int) -> None:
        self.topics = Topics(Topic("orders", UUID(int=1), TASKS), Topic("store", UUID(int=2), TASKS))
        named = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}
        super().__init__(**(named | properties))

    def start(self) -> GroupCoordinator:
        coordinator = super().start()
        coordinator.context.topics = self.topics
        return coordinator

    @property
    def streams_group(self) -> StreamsGroup:
        return self.coordinator.streams_groups(GROUP).group(GROUP)


@dataclass
class Member:
    world: StreamsWorld
    name: str
    process: str
    epoch: int = 0
    owned: dict[TasksKey, tuple[int, ...]] = field(default_factory=dict)
    last: StreamsHeartbeatResponse | None = None

    def beat(self, epoch: int | None = None, **changes: object) -> StreamsHeartbeatResponse:
        """The next heartbeat; what is to be given up is given up at once."""
        epoch = self.epoch if epoch is None else epoch
        values: dict[str, object] = {"owned": self.owned, "client_id": "c", "client_host": "/127.0.0.1"}
        if epoch == 0:
            values |= {
                "rebalance_timeout_ms": 60_000, "topology": TOPOLOGY, "process_id": self.process, "owned": {},
                "sent_roles": NO_TASKS,
            }  # fmt: skip
        request = StreamsHeartbeatRequest(GROUP, self.name, epoch, **(values | changes))  # type: ignore[arg-type]
        answer = self.world.coordinator.streams_group_heartbeat(request)
        self.last = answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = dict(answer.assignment)
        return answer

    @property
    def active(self) -> tuple[int, ...]:
        return self.owned.get(TasksKey(TaskRole.ACTIVE, "0"), ())


STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "beat", "beat", "beat", "leave", "crash", "time"]), st.integers(0, 4)),
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, st.integers(0, 2))
def test_active_tasks_have_one_owner_and_in_the_end_each_has_one(steps: list[tuple[str, int]], replicas: int) -> None:
    world = StreamsWorld(group_streams_num_standby_replicas=replicas)
    members: dict[str, Member] = {}
    for what, number in steps:
        name = "abcde"[number]
        if what == "crash":
            world.crash()
        elif what == "time":
            world.time.advance(1_000 * number)
        elif what == "join" and name not in members:
            members[name] = Member(world, name, "PQR"[number % 3])
            members[name].beat()
        elif name in members and what == "leave":
            members.pop(name).beat(-1)
        elif name in members and what == "beat":
            members[name].beat()
        held = Counter(task for member in members.values() for task in member.active)
        assert not held or max(held.values()) == 1
    if not members:
        return
    for _ in range(8):
        for member in members.values():
            member.beat()
    assert {member.epoch for member in members.values()} == {world.streams_group.epoch}
    assert world.streams_group.state is ModernGroupState.STABLE
    assert sorted(task for member in members.values() for task in member.active) == list(range(TASKS))
    before = {name: dict(member.owned) for name, member in members.items()}
    world.crash()
    for member in members.values():
        assert member.beat().assignment is None
    assert {name: member.owned for name, member in members.items()} == before


def test_tasks_of_a_member_without_heartbeats_are_assigned_to_others() -> None:
    world = StreamsWorld()
    first, second = Member(world, "a", "P"), Member(world, "b", "Q")
    for member in (first, second, first, first, second):
        member.beat()
    assert sorted((*first.active, *second.active)) == list(range(TASKS))
    for _ in range(6):
        world.time.advance(10_000)
        second.beat()
    assert len(second.active) == TASKS
    with pytest.raises(BrokerError, match="not a member") as error:
        first.beat()
    assert error.value.code is ErrorCode.unknown_member_id


def test_first_streams_assignment_is_delayed_and_a_shutdown_request_ends_with_the_group() -> None:
    world = StreamsWorld(group_streams_initial_rebalance_delay_ms=3_000)
    first, second = Member(world, "a", "P"), Member(world, "b", "Q")
    for member in (first, second, first):
        assert [status.code for status in member.beat().statuses] == [StatusCode.ASSIGNMENT_DELAYED]
    world.time.advance(3_000)
    assert world.streams_group.assignment_epoch == world.streams_group.epoch
    first.beat(shutdown_application=True)
    assert len(first.active) == TASKS // 2
    assert [status.code for status in second.beat().statuses] == [StatusCode.SHUTDOWN_APPLICATION]
    first.beat(-1)
    second.beat(-1)
    assert world.streams_group.state is ModernGroupState.EMPTY
    assert [status.code for status in Member(world, "c", "P").beat().statuses] == [StatusCode.ASSIGNMENT_DELAYED]


def test_large_groups_are_assigned_in_the_background() -> None:
    """Members keep their tasks until the new assignment is computed."""
    world = StreamsWorld()
    world.topics.put(Topic("orders", UUID(int=1), 4_000), Topic("store", UUID(int=2), 4_000))
    waiting = []
    world.coordinator.context.background = lambda compute, done: waiting.append((compute, done))
    member = Member(world, "a", "P")
    assert member.beat().assignment == {}
    assert member.beat().assignment is None
    ((compute, done),) = waiting
    done(compute())
    assert len((member.beat().assignment or {})[TasksKey(TaskRole.ACTIVE, "0")]) == 4_000


def test_heartbeat_that_cannot_be_written_changes_nothing() -> None:
    world = StreamsWorld()
    member = Member(world, "a", "P")
    world.log.failure = ErrorCode.kafka_storage_error
    with pytest.raises(BrokerError):
        member.beat()
    world.log.failure = None
    assert member.beat().member_epoch == 2


def test_response_has_no_endpoints_if_they_name_too_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    world = StreamsWorld()
    members = [Member(world, f"m{number}", f"p{number}") for number in range(2)]
    for member in members:
        member.beat(user_endpoint=Endpoint(member.name, 1))
    for member in (*members, *members):
        member.beat()
    told = members[0].beat().endpoints
    assert told is not None
    assert [one["active_partitions"][0]["topic"] for one in told] == ["orders", "orders"]
    assert streams_endpoints.endpoint_topics(world.streams_group) == 2
    monkeypatch.setattr(streams_endpoints, "MAX_ENDPOINT_TOPICS", 1)
    assert members[0].beat().endpoints is None
