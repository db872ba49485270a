"""Members with group.instance.id: they keep their assignment when they restart within the session timeout."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_requests import JoinResponse, LeavingMember, SyncResponse
from tests.broker.groups.helpers.virtual_time import RANGE, World, subscription


def test_static_member_that_restarts_keeps_its_assignment() -> None:
    world = World()
    leader, follower = world.stable(2, instance="i")
    again = world.client(instance=follower.instance).join()
    told = again.joined
    assert (told.error_code, told.generation_id, told.leader, told.members) == (ErrorCode.none, 1, leader.member_id, ())
    assert again.member_id != follower.member_id
    again.sync()
    assert again.syncs[-1].assignment == follower.member_id.encode()
    assert world.state() == "Stable"
    assert follower.heartbeat() is ErrorCode.fenced_instance_id
    record = world.log.last_group("g")
    assert record is not None
    assert {m.member_id for m in record.members} == {leader.member_id, again.member_id}


def test_static_leader_that_restarts_gets_another_leader_id_before_v9() -> None:
    world = World()
    leader, _ = world.stable(2, instance="i")
    again = world.client(instance=leader.instance).join()
    assert (again.joined.leader, again.joined.members) == (leader.member_id, ())
    assert world.group().leader == again.member_id


def test_static_leader_that_restarts_skips_the_assignment_since_v9() -> None:
    world = World()
    leader, _ = world.stable(2, instance="i")
    again = world.client(instance=leader.instance, version=9).join()
    assert again.leads
    assert again.joined.skip_assignment
    assert len(again.joined.members) == 2


def test_static_member_that_restarts_with_other_protocols_begins_a_rebalance() -> None:
    world = World()
    metadata = subscription("orders")
    both = (("range", metadata), ("sticky", metadata))
    leader, follower = world.stable(2, instance="i", protocols=both)
    again = world.client(instance=follower.instance, protocols=(("sticky", metadata),)).join()
    assert again.waits
    leader.join()
    assert again.joined.protocol_name == "sticky"


def test_static_member_that_restarts_in_the_sync_phase_begins_a_rebalance() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", instance=f"i{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    follower.sync()
    again = world.client(instance=follower.instance).join()
    assert follower.syncs == [SyncResponse(ErrorCode.fenced_instance_id)]
    assert again.waits
    leader.join()
    assert {again.joined.generation_id, leader.joined.generation_id} == {2}


def test_static_member_that_joins_twice_fences_its_first_join() -> None:
    world = World()
    first = world.client(instance="i").join()
    second = world.client(instance="i").join()
    world.time.advance(0)
    assert first.joined == JoinResponse(ErrorCode.fenced_instance_id, first.joined.member_id)
    assert second.joined.generation_id == 1


def test_static_member_without_heartbeats_stays_until_its_session_timeout() -> None:
    world = World()
    stays, away = world.stable(2, instance="i", session_ms=30_000, rebalance_ms=10_000)
    new = world.client(client_id="new", session_ms=30_000, rebalance_ms=10_000).join()
    stays.join()
    world.time.advance(10_000)
    assert stays.joined.generation_id == 2
    assert away.member_id in world.group().members
    assert new.joined.generation_id == 2


def test_static_members_that_do_not_return_stay_until_their_session_timeouts() -> None:
    world = World()
    world.stable(2, instance="i", session_ms=30_000, rebalance_ms=10_000)
    new = world.client(client_id="new", session_ms=6_000)
    new._join({})
    new.leave()
    leader = world.group().leader
    assert leader is not None
    world.leave(LeavingMember(leader))
    assert world.state() == "PreparingRebalance"
    world.time.advance(10_000)
    assert world.state() == "PreparingRebalance"
    world.time.advance(20_000)
    assert world.state() == "Empty"


def test_member_id_of_a_static_member_contains_its_group_instance_id() -> None:
    world = World()
    client = world.client(instance="host-7", client_id="app").join()
    world.time.advance(0)
    assert client.member_id == "host-7-0"


def test_administrator_removes_a_static_member_by_its_group_instance_id() -> None:
    world = World()
    one, two = world.stable(2, instance="i")
    codes = world.leave(LeavingMember("", two.instance), LeavingMember("", "unknown"))
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert set(world.group().members) == {one.member_id}
    assert two.heartbeat() is ErrorCode.unknown_member_id


def test_static_member_keeps_its_old_id_when_its_return_cannot_be_written() -> None:
    world = World()
    _, follower = world.stable(2, instance="i")
    world.log.failure = ErrorCode.kafka_storage_error
    again = world.client(instance=follower.instance).join()
    assert (again.joined.error_code, again.joined.member_id) == (ErrorCode.not_coordinator, "")
    assert follower.heartbeat() is ErrorCode.none
    world.log.failure = None
    third = world.client(instance=follower.instance).join()
    assert third.joined.error_code is ErrorCode.none


def test_many_joining_and_leaving_members_end_in_one_generation() -> None:
    world = World(group_initial_rebalance_delay_ms=100)
    clients = [world.client(client_id=f"c{n}").join() for n in range(200)]
    world.time.advance(200)
    assert {client.joined.generation_id for client in clients} == {1}
    world.sync_all(clients)
    for client in clients[:100]:
        client.leave()
    rest = clients[100:]
    for client in rest:
        assert client.heartbeat() is ErrorCode.rebalance_in_progress
        client.join()
    assert {client.joined.generation_id for client in rest} == {2}
    world.sync_all(rest)


def test_metadata_of_other_protocol_types_is_not_parsed() -> None:
    world = World()
    client = world.client(protocols=(("v1", b"\xff" * 3),))
    client.join(protocol_type="connect")
    world.time.advance(0)
    assert client.joined.error_code is ErrorCode.none
    assert world.group().topics is None


def test_members_with_metadata_other_than_a_subscription_can_join() -> None:
    world = World()
    client = world.client(protocols=(("range", b"\0\1\0\0\0\5"),)).join()
    world.time.advance(0)
    assert client.joined.error_code is ErrorCode.none
    assert world.group().topics is None
    assert RANGE[0][1]


def test_text_from_clients_is_quoted_and_truncated_in_log_messages(caplog: pytest.LogCaptureFixture) -> None:
    """A reason with line breaks wrote lines of its own into the broker's log, and terminal escapes came through."""
    caplog.set_level("INFO")
    forged = "bored)\n2026-01-01 ERROR the disk is on fire \x1b[2J" + "x" * 30_000
    world = World()
    group = "g" * 30_000
    me = world.client(group_id=group, client_id=forged[:200], version=0).join()
    world.time.advance(0)
    me.sync()
    world.leave(LeavingMember(me.member_id, None, forged), group_id=group)
    told = [record.getMessage() for record in caplog.records]
    assert any("leaves" in line and "disk is on fire" in line for line in told)
    assert not any("\n" in line or "\x1b" in line for line in told)
    assert max(map(len, told)) < 1000
