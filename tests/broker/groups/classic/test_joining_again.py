"""Rebalances of a classic group: their causes, and the members afterwards."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_requests import JoinResponse, SyncResponse
from tests.broker.groups.helpers.virtual_time import World, subscription


def test_new_member_of_a_stable_group_starts_a_rebalance() -> None:
    world = World()
    old = world.stable(2)
    new = world.client(client_id="new").join()
    assert world.state() == "PreparingRebalance"
    assert [client.heartbeat() for client in old] == [ErrorCode.rebalance_in_progress] * 2
    for client in old:
        assert new.waits
        client.join()
    assert {client.joined.generation_id for client in (*old, new)} == {2}
    world.sync_all([*old, new])
    assert world.state() == "Stable"


def test_member_that_does_not_join_again_within_the_rebalance_timeout_is_removed() -> None:
    world = World()
    lazy, eager = world.stable(2, session_ms=100_000, rebalance_ms=20_000)
    new = world.client(client_id="new", rebalance_ms=20_000).join()
    eager.join()
    world.time.advance(19_999)
    assert eager.waits
    world.time.advance(1)
    assert {client.joined.generation_id for client in (eager, new)} == {2}
    assert set(world.group().members) == {eager.member_id, new.member_id}
    assert world.group().leader in world.group().members
    assert lazy.heartbeat() is ErrorCode.unknown_member_id


def test_member_without_heartbeats_is_removed_after_its_session_timeout() -> None:
    world = World()
    dead, alive = world.stable(2, session_ms=10_000)
    for _ in range(3):
        world.time.advance(3000)
        assert alive.heartbeat() is ErrorCode.none
    assert len(world.group().members) == 2
    world.time.advance(1000)
    assert alive.heartbeat() is ErrorCode.rebalance_in_progress
    alive.join()
    assert alive.leads
    alive.sync()
    assert world.state() == "Stable"
    assert dead.heartbeat() is ErrorCode.unknown_member_id


def test_group_whose_members_all_crash_becomes_empty() -> None:
    world = World()
    world.stable(3, session_ms=10_000)
    world.time.advance(10_000)
    assert world.state() == "Empty"
    assert world.log.last_group("g") == ("consumer", 2, None, None, world.time.clock.now_ms(), ())


def test_group_becomes_empty_when_its_last_member_leaves() -> None:
    world = World()
    (only,) = world.stable(1)
    assert only.leave() is ErrorCode.none
    assert world.state() == "Empty"
    assert world.group().generation == 2
    assert world.time.waiting == 0


def test_members_in_the_sync_phase_have_to_join_again_when_another_leaves() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(3)]
    world.time.advance(0)
    leader, waiting, leaving = sorted(clients, key=lambda client: not client.leads)
    waiting.sync()
    assert leaving.leave() is ErrorCode.none
    assert waiting.syncs == [SyncResponse(ErrorCode.rebalance_in_progress)]
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress


def test_member_that_does_not_sync_within_the_rebalance_timeout_is_removed() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", rebalance_ms=5000).join() for n in range(2)]
    world.time.advance(0)
    leader, silent = sorted(clients, key=lambda client: not client.leads)
    leader.sync()
    world.time.advance(5000)
    assert set(world.group().members) == {leader.member_id}
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    assert silent.heartbeat() is ErrorCode.unknown_member_id


def test_sync_phase_without_an_assignment_begins_another_rebalance() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", rebalance_ms=5000).join() for n in range(2)]
    world.time.advance(0)
    follower = max(clients, key=lambda client: not client.leads)
    follower.sync()
    world.time.advance(5000)
    assert follower.syncs == [SyncResponse(ErrorCode.rebalance_in_progress)]
    follower.join()
    assert follower.leads


def test_heartbeat_in_the_sync_phase_succeeds() -> None:
    world = World()
    client = world.client().join()
    world.time.advance(0)
    assert client.heartbeat() is ErrorCode.none


def test_member_id_that_is_not_used_to_join_is_removed() -> None:
    world = World()
    request = world.client(session_ms=6000)
    request._join({})
    assert world.group().pending_members == {"client-0"}
    world.time.advance(6000)
    assert world.group().pending_members == set()
    request.join()
    assert request.joined.error_code is ErrorCode.unknown_member_id


def test_join_phase_waits_for_a_pending_member() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.client(client_id="pending", session_ms=6000)._join({})
    leader.join()
    follower.join()
    assert leader.waits
    world.time.advance(6000)
    assert leader.joined.generation_id == 2


def test_new_member_without_heartbeats_is_removed_after_five_minutes() -> None:
    world = World()
    stays = world.stable(1, session_ms=1_000_000, rebalance_ms=1_800_000)[0]
    gone = world.client(client_id="gone", version=3, rebalance_ms=1_800_000).join()
    world.time.advance(299_999)
    assert gone.waits
    world.time.advance(1)
    assert gone.joined == JoinResponse(ErrorCode.unknown_member_id)
    stays.join()
    assert stays.joined.generation_id == 2


def test_follower_that_joins_again_unchanged_gets_the_current_generation() -> None:
    world = World()
    leader, follower = world.stable(2)
    follower.join()
    assert (follower.joined.generation_id, follower.joined.leader, follower.joined.members) == (1, leader.member_id, ())
    assert world.state() == "Stable"


def test_leader_that_joins_again_begins_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    leader.join()
    assert leader.waits
    assert follower.heartbeat() is ErrorCode.rebalance_in_progress


def test_follower_that_joins_again_with_other_metadata_begins_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    follower.protocols = (("range", subscription("orders", "more")),)
    follower.join()
    assert follower.waits
    leader.join()
    assert follower.joined.generation_id == 2
    assert world.group().topics == {"orders", "more"}  # type: ignore[comparison-overlap]


def test_second_join_in_the_sync_phase_gets_the_same_generation() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, _ = sorted(clients, key=lambda client: not client.leads)
    leader.join()
    assert leader.joins[-1] == leader.joins[-2]


def test_waiting_join_is_answered_when_its_member_joins_again() -> None:
    world = World()
    first, second = world.stable(2)
    first.join()
    first.join()
    assert [answer.error_code for answer in first.joins[-1:]] == [ErrorCode.rebalance_in_progress]
    second.join()
    assert first.joins[-1].generation_id == second.joined.generation_id == 2
