"""Classic group members that join, sync, send heartbeats and leave, in virtual time."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_requests import JoinedMember, JoinResponse, SyncResponse
from tests.broker.groups.helpers.virtual_time import World, subscription


def test_new_dynamic_member_gets_member_id_required_and_joins_with_that_id() -> None:
    world = World()
    client = world.client(client_id="app")
    client.join()
    assert client.joins[0] == JoinResponse(ErrorCode.member_id_required, "app-0")
    assert client.waits
    world.time.advance(0)
    assert client.joined == JoinResponse(
        ErrorCode.none, "app-0", 1, "consumer", "range", "app-0", (JoinedMember("app-0", None, subscription("orders")),)
    )


@pytest.mark.parametrize("version", [0, 3])
def test_new_member_before_v4_joins_with_its_first_request(version: int) -> None:
    world = World()
    client = world.client(version=version).join()
    world.time.advance(0)
    assert [answer.error_code for answer in client.joins] == [ErrorCode.none]


def test_new_group_is_in_the_log_before_the_first_response() -> None:
    world = World()
    world.client().join()
    assert world.log.last_group("g") == ("", 0, None, None, world.time.clock.now_ms(), ())


def test_join_response_has_members_for_the_leader_only() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert {member.member_id for member in leader.joined.members} == {leader.member_id, follower.member_id}
    assert follower.joined.members == ()
    assert follower.joined.leader == leader.member_id


def test_followers_wait_for_the_leaders_assignment() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    follower.sync()
    assert follower.syncs == []
    assert world.state() == "CompletingRebalance"
    leader.sync()
    assert follower.syncs == [SyncResponse(ErrorCode.none, "consumer", "range", follower.member_id.encode())]
    assert world.state() == "Stable"


def test_member_omitted_by_the_leader_gets_an_empty_assignment() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    leader.sync(assignments=())
    follower.sync()
    assert follower.syncs == [SyncResponse(ErrorCode.none, "consumer", "range", b"")]


def test_assignment_is_in_the_log_before_members_receive_it() -> None:
    world = World()
    leader, follower = world.stable(2)
    record = world.log.last_group("g")
    assert record is not None
    assert (record.protocol_type, record.generation, record.protocol, record.leader) == (
        "consumer", 1, "range", leader.member_id,
    )  # fmt: skip
    assert {m.member_id: (m.subscription, m.assignment) for m in record.members} == {
        client.member_id: (subscription("orders"), client.member_id.encode()) for client in (leader, follower)
    }
    assert {(m.client_host, m.session_timeout, m.rebalance_timeout) for m in record.members} == {
        ("/127.0.0.1", 10_000, 60_000)
    }


def test_first_join_phase_is_extended_while_members_join() -> None:
    world = World(group_initial_rebalance_delay_ms=3000)
    first = world.client(client_id="a").join()
    world.time.advance(2999)
    second = world.client(client_id="b").join()
    world.time.advance(2999)
    assert first.waits
    world.time.advance(2)
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert len(world.group().members) == 2


def test_first_join_phase_is_not_extended_beyond_the_rebalance_timeout() -> None:
    world = World(group_initial_rebalance_delay_ms=3000)
    first = world.client(client_id="a", rebalance_ms=7000).join()
    for number in range(10):
        if not first.waits:
            break
        world.time.advance(1000)
        world.client(client_id=f"b{number}", rebalance_ms=7000).join()
    assert world.time.clock.now_ms() - 1_700_000_000_000 <= 9000
    assert not first.waits


def test_stable_group_survives_a_crash_of_the_broker() -> None:
    world = World()
    clients = world.stable(3, session_ms=10_000)
    world.crash()
    assert [client.heartbeat() for client in clients] == [ErrorCode.none] * 3
    world.sync_all(clients[1:])
    dead = clients.pop()
    world.time.advance(9_999)
    assert [client.heartbeat() for client in clients] == [ErrorCode.none] * 2
    world.time.advance(1)
    assert [client.heartbeat() for client in clients] == [ErrorCode.rebalance_in_progress] * 2
    assert dead.heartbeat() is ErrorCode.unknown_member_id


def test_waiting_requests_are_answered_when_the_broker_stops() -> None:
    world = World()
    one, two = world.stable(2)
    one.join()
    world.coordinator.shutdown()
    assert one.joined.error_code is ErrorCode.not_coordinator
    assert two.heartbeat() is ErrorCode.coordinator_not_available
    assert world.time.waiting == 0


def test_requests_get_load_in_progress_while_the_partition_is_loaded() -> None:
    world = World()
    (client,) = world.stable(1)
    world.coordinator.close_all()
    world.coordinator.runtime.begin_loading([0])
    assert client.heartbeat() is ErrorCode.none  # as if nothing was: its session begins anew afterwards
    client.join()
    assert client.joined.error_code is ErrorCode.coordinator_load_in_progress
    world.coordinator.runtime.unload(0)
    assert client.heartbeat() is ErrorCode.none
