from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.messages import JoinAnswer, JoinedMember, LeavingMember, SyncAnswer
from kafkalog_broker.groups.offset_records import GroupMetadata
from tests.broker.groups.virtual_time import RANGE, World, subscription


def test_a_new_dynamic_member_gets_its_id_first() -> None:
    world = World()
    client = world.client(client_id="app")
    client.join()
    assert client.joins[0] == JoinAnswer(ErrorCode.member_id_required, "app-0")
    assert client.waits
    world.time.advance(0)
    assert client.joined == JoinAnswer(
        ErrorCode.none, "app-0", 1, "consumer", "range", "app-0", (JoinedMember("app-0", None, subscription("orders")),)
    )


@pytest.mark.parametrize("version", [0, 3])
def test_a_member_of_an_old_client_joins_at_once(version: int) -> None:
    world = World()
    client = world.client(version=version).join()
    world.time.advance(0)
    assert [answer.error for answer in client.joins] == [ErrorCode.none]


def test_a_new_group_is_in_the_log_before_its_first_member_is_answered() -> None:
    world = World()
    world.client().join()
    assert world.log.last_group("g") == GroupMetadata("", 0, None, None, world.time.clock.now_ms())


def test_only_the_leader_learns_the_members() -> None:
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
    assert follower.syncs == [SyncAnswer(ErrorCode.none, "consumer", "range", follower.member_id.encode())]
    assert world.state() == "Stable"


def test_a_member_that_the_leader_leaves_out_gets_an_empty_assignment() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    leader.sync(assignments=())
    follower.sync()
    assert follower.syncs == [SyncAnswer(ErrorCode.none, "consumer", "range", b"")]


def test_the_assignment_is_in_the_log_when_members_have_it() -> None:
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
    assert {(m.client_host, m.session_timeout_ms, m.rebalance_timeout_ms) for m in record.members} == {
        ("/127.0.0.1", 10_000, 60_000)
    }


def test_the_first_join_phase_is_extended_while_members_come() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    first = world.client(client_id="a").join()
    world.time.advance(2999)
    second = world.client(client_id="b").join()
    world.time.advance(2999)
    assert first.waits
    world.time.advance(2)
    assert first.joined.generation == second.joined.generation == 1
    assert len(world.group().members) == 2


def test_the_first_join_phase_is_not_extended_beyond_the_rebalance_timeout() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    first = world.client(client_id="a", rebalance_ms=7000).join()
    for number in range(10):
        if not first.waits:
            break
        world.time.advance(1000)
        world.client(client_id=f"b{number}", rebalance_ms=7000).join()
    assert world.time.clock.now_ms() - 1_700_000_000_000 <= 9000
    assert not first.waits


def test_a_member_that_joins_a_stable_group_makes_all_join_again() -> None:
    world = World()
    old = world.stable(2)
    new = world.client(client_id="new").join()
    assert world.state() == "PreparingRebalance"
    assert [client.heartbeat() for client in old] == [ErrorCode.rebalance_in_progress] * 2
    for client in old:
        assert new.waits
        client.join()
    assert {client.joined.generation for client in (*old, new)} == {2}
    world.sync_all([*old, new])
    assert world.state() == "Stable"


def test_who_does_not_join_again_in_time_is_out() -> None:
    world = World()
    lazy, eager = world.stable(2, session_ms=100_000, rebalance_ms=20_000)
    new = world.client(client_id="new", rebalance_ms=20_000).join()
    eager.join()
    world.time.advance(19_999)
    assert eager.waits
    world.time.advance(1)
    assert {client.joined.generation for client in (eager, new)} == {2}
    assert set(world.group().members) == {eager.member_id, new.member_id}
    assert world.group().leader in world.group().members
    assert lazy.heartbeat() is ErrorCode.unknown_member_id


def test_a_member_without_heartbeats_is_out_when_its_session_ends() -> None:
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


def test_a_group_whose_members_all_crash_is_empty() -> None:
    world = World()
    world.stable(3, session_ms=10_000)
    world.time.advance(10_000)
    assert world.state() == "Empty"
    assert world.log.last_group("g") == GroupMetadata("consumer", 2, None, None, world.time.clock.now_ms())


def test_the_last_member_that_leaves_makes_the_group_empty() -> None:
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
    assert waiting.syncs == [SyncAnswer(ErrorCode.rebalance_in_progress)]
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress


def test_who_does_not_sync_in_time_is_out() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", rebalance_ms=5000).join() for n in range(2)]
    world.time.advance(0)
    leader, silent = sorted(clients, key=lambda client: not client.leads)
    leader.sync()
    world.time.advance(5000)
    assert set(world.group().members) == {leader.member_id}
    assert leader.heartbeat() is ErrorCode.rebalance_in_progress
    assert silent.heartbeat() is ErrorCode.unknown_member_id


def test_a_group_without_its_leaders_assignment_starts_over() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", rebalance_ms=5000).join() for n in range(2)]
    world.time.advance(0)
    follower = max(clients, key=lambda client: not client.leads)
    follower.sync()
    world.time.advance(5000)
    assert follower.syncs == [SyncAnswer(ErrorCode.rebalance_in_progress)]
    follower.join()
    assert follower.leads


def test_heartbeats_are_welcome_while_the_assignment_is_awaited() -> None:
    world = World()
    client = world.client().join()
    world.time.advance(0)
    assert client.heartbeat() is ErrorCode.none


def test_a_member_id_that_nobody_joins_with_is_forgotten() -> None:
    world = World()
    request = world.client(session_ms=6000)
    request._join({})
    assert world.group().pending_members == {"client-0"}
    world.time.advance(6000)
    assert world.group().pending_members == set()
    request.join()
    assert request.joined.error is ErrorCode.unknown_member_id


def test_a_pending_member_holds_up_the_join_phase() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.client(client_id="pending", session_ms=6000)._join({})
    leader.join()
    follower.join()
    assert leader.waits
    world.time.advance(6000)
    assert leader.joined.generation == 2


def test_a_new_member_that_is_never_heard_of_is_out_after_five_minutes() -> None:
    world = World()
    stays = world.stable(1, session_ms=1_000_000, rebalance_ms=1_800_000)[0]
    gone = world.client(client_id="gone", version=3, rebalance_ms=1_800_000).join()
    world.time.advance(299_999)
    assert gone.waits
    world.time.advance(1)
    assert gone.joined == JoinAnswer(ErrorCode.unknown_member_id)
    stays.join()
    assert stays.joined.generation == 2


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_it_knows() -> None:
    world = World()
    leader, follower = world.stable(2)
    follower.join()
    assert (follower.joined.generation, follower.joined.leader, follower.joined.members) == (1, leader.member_id, ())
    assert world.state() == "Stable"


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    leader.join()
    assert leader.waits
    assert follower.heartbeat() is ErrorCode.rebalance_in_progress


def test_a_follower_with_other_metadata_makes_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    follower.protocols = (("range", subscription("orders", "more")),)
    follower.join()
    assert follower.waits
    leader.join()
    assert follower.joined.generation == 2
    assert world.group().topics == {"orders", "more"}  # type: ignore[comparison-overlap]


def test_a_second_join_in_the_sync_phase_is_told_the_same_generation() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, _ = sorted(clients, key=lambda client: not client.leads)
    leader.join()
    assert leader.joins[-1] == leader.joins[-2]


def test_a_request_that_was_given_up_is_answered_when_its_member_joins_again() -> None:
    world = World()
    first, second = world.stable(2)
    first.join()
    first.join()
    assert [answer.error for answer in first.joins[-1:]] == [ErrorCode.rebalance_in_progress]
    second.join()
    assert first.joins[-1].generation == second.joined.generation == 2


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    world = World()
    metadata = subscription("orders")
    votes = [("a", "b", "c"), ("b", "a"), ("c", "b", "a"), ("b", "a", "c")]
    clients = [
        world.client(client_id=f"c{n}", protocols=tuple((name, metadata) for name in names)).join()
        for n, names in enumerate(votes)
    ]
    world.time.advance(0)
    # c is not known to all; so the third votes for b
    assert {client.joined.protocol for client in clients} == {"b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("roundrobin", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_a_member_that_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    world = World()
    (member,) = world.stable(1)
    other = world.client(client_id="other")
    other.join(**changes)
    assert other.joined.error is ErrorCode.inconsistent_group_protocol
    assert member.heartbeat() is ErrorCode.none


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_asks_for_a_protocol_too(changes: dict[str, object]) -> None:
    client = World().client()
    client.join(**changes)
    assert client.joined == JoinAnswer(ErrorCode.inconsistent_group_protocol)


def test_an_empty_group_may_change_its_protocol_type() -> None:
    world = World()
    (only,) = world.stable(1)
    only.leave()
    other = world.client(client_id="other", protocols=(("v1", b""),))
    other._join({"protocol_type": "connect"})
    other._join({"protocol_type": "connect"})
    world.time.advance(0)
    assert other.joined.protocol_type == "connect"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
        ({"generation": 0}, ErrorCode.illegal_generation),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol": "roundrobin"}, ErrorCode.inconsistent_group_protocol),
        ({"group_id": "other"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"protocol_type": None, "protocol": None}, ErrorCode.none),
    ],
)
def test_sync_group_checks_who_asks(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    (client,) = world.stable(1)
    client.sync(**changes)
    assert client.syncs[-1].error is error


def test_sync_group_during_the_join_phase_is_sent_back() -> None:
    world = World()
    leader, _ = world.stable(2)
    world.client(client_id="new").join()
    leader.sync()
    assert leader.syncs[-1] == SyncAnswer(ErrorCode.rebalance_in_progress)


@pytest.mark.parametrize(
    ("group_id", "member_id", "generation", "instance", "error"),
    [
        ("", "m", 1, None, ErrorCode.invalid_group_id),
        ("other", "m", 1, None, ErrorCode.unknown_member_id),
        ("g", "stranger", 1, None, ErrorCode.unknown_member_id),
        ("g", "c0-0", 7, None, ErrorCode.illegal_generation),
        ("g", "c0-0", 1, "i", ErrorCode.unknown_member_id),
        ("g", "c0-0", 1, None, ErrorCode.none),
    ],
)
def test_heartbeat_checks_who_sends(
    group_id: str, member_id: str, generation: int, instance: str | None, error: ErrorCode
) -> None:
    world = World()
    world.stable(1)
    assert world.coordinator.heartbeat(group_id, member_id, generation, instance) is error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 5999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
    ],
)
def test_join_group_checks_who_asks(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    client = world.client()
    client.join(**changes)
    assert client.joined.error is error
    assert world.coordinator.list_groups() == []


def test_a_full_group_takes_nobody_in() -> None:
    world = World(max_size=2)
    members = world.stable(2)
    late = world.client(client_id="late", version=3).join()
    assert late.joined == JoinAnswer(ErrorCode.group_max_size_reached)
    assert [member.heartbeat() for member in members] == [ErrorCode.none] * 2


def test_a_full_group_keeps_those_who_join_again_first() -> None:
    world = World(max_size=4)
    members = world.stable(4)
    world.config = world.config.__class__(initial_rebalance_delay_ms=0, max_size=2)
    world.crash()
    assert world.state() == "PreparingRebalance"
    for member in members:
        member.join()
    assert [member.joined.error for member in members] == [ErrorCode.none] * 2 + [ErrorCode.group_max_size_reached] * 2
    assert len(world.group().members) == 2


def test_members_leave_together_each_with_its_own_code() -> None:
    world = World()
    one, two, three = world.stable(3)
    codes = world.coordinator.leave(
        "g", [LeavingMember(one.member_id), LeavingMember("stranger"), LeavingMember(two.member_id, "i")]
    )
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id]
    assert three.heartbeat() is ErrorCode.rebalance_in_progress
    assert set(world.group().members) == {two.member_id, three.member_id}


def test_a_pending_member_may_leave() -> None:
    world = World()
    client = world.client()
    client._join({})
    assert client.leave() is ErrorCode.none
    assert world.group().pending_members == set()
    assert world.time.waiting == 0


def test_leaving_an_unknown_group_is_unknown_member_id() -> None:
    assert World().client(member_id="m").leave() is ErrorCode.unknown_member_id


def test_the_answer_is_an_error_when_a_new_group_cannot_be_written() -> None:
    world = World()
    world.log.failure = ErrorCode.kafka_storage_error
    client = world.client().join()
    assert client.joined == JoinAnswer(ErrorCode.not_coordinator)
    assert world.coordinator.list_groups() == []


def test_members_join_again_when_their_assignment_cannot_be_written() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    follower.sync()
    world.log.failure = ErrorCode.not_enough_replicas
    leader.sync()
    assert leader.syncs == follower.syncs == [SyncAnswer(ErrorCode.coordinator_not_available)]
    assert world.state() == "PreparingRebalance"


def test_a_group_goes_on_after_a_crash_of_the_broker() -> None:
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


def test_who_waits_is_answered_when_the_broker_stops() -> None:
    world = World()
    one, two = world.stable(2)
    one.join()
    world.coordinator.shutdown()
    assert one.joined.error is ErrorCode.not_coordinator
    assert two.heartbeat() is ErrorCode.coordinator_not_available
    assert world.time.waiting == 0


def test_requests_are_sent_back_while_the_group_is_being_read() -> None:
    world = World()
    (client,) = world.stable(1)
    world.coordinator.close_partition(0)
    world.coordinator.shards.begin_loading(0)
    assert client.heartbeat() is ErrorCode.none  # as if nothing was: its session begins anew afterwards
    client.join()
    assert client.joined.error is ErrorCode.coordinator_load_in_progress
    world.coordinator.shards.give_up(0)
    assert client.heartbeat() is ErrorCode.none


def test_a_static_member_that_restarts_keeps_its_assignment() -> None:
    world = World()
    leader, follower = world.stable(2, instance="i")
    again = world.client(instance=follower.instance).join()
    told = again.joined
    assert (told.error, told.generation, told.leader, told.members) == (ErrorCode.none, 1, leader.member_id, ())
    assert again.member_id != follower.member_id
    again.sync()
    assert again.syncs[-1].assignment == follower.member_id.encode()
    assert world.state() == "Stable"
    assert follower.heartbeat() is ErrorCode.fenced_instance_id
    record = world.log.last_group("g")
    assert record is not None
    assert {m.member_id for m in record.members} == {leader.member_id, again.member_id}


def test_a_static_leader_that_restarts_is_not_told_so_by_old_versions() -> None:
    world = World()
    leader, _ = world.stable(2, instance="i")
    again = world.client(instance=leader.instance).join()
    assert (again.joined.leader, again.joined.members) == (leader.member_id, ())
    assert world.group().leader == again.member_id


def test_a_static_leader_that_restarts_skips_the_assignment_in_version_9() -> None:
    world = World()
    leader, _ = world.stable(2, instance="i")
    again = world.client(instance=leader.instance, version=9).join()
    assert again.leads
    assert again.joined.skip_assignment
    assert len(again.joined.members) == 2


def test_a_static_member_that_restarts_with_another_choice_makes_a_rebalance() -> None:
    world = World()
    metadata = subscription("orders")
    both = (("range", metadata), ("sticky", metadata))
    leader, follower = world.stable(2, instance="i", protocols=both)
    again = world.client(instance=follower.instance, protocols=(("sticky", metadata),)).join()
    assert again.waits
    leader.join()
    assert again.joined.protocol == "sticky"


def test_a_static_member_that_restarts_in_the_sync_phase_makes_a_rebalance() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}", instance=f"i{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    follower.sync()
    again = world.client(instance=follower.instance).join()
    assert follower.syncs == [SyncAnswer(ErrorCode.fenced_instance_id)]
    assert again.waits
    leader.join()
    assert {again.joined.generation, leader.joined.generation} == {2}


def test_a_static_member_that_joins_twice_is_fenced_the_first_time() -> None:
    world = World()
    first = world.client(instance="i").join()
    second = world.client(instance="i").join()
    world.time.advance(0)
    assert first.joined == JoinAnswer(ErrorCode.fenced_instance_id, first.joined.member_id)
    assert second.joined.generation == 1


def test_a_static_member_that_is_away_is_in_until_its_session_ends() -> None:
    world = World()
    stays, away = world.stable(2, instance="i", session_ms=30_000, rebalance_ms=10_000)
    new = world.client(client_id="new", session_ms=30_000, rebalance_ms=10_000).join()
    stays.join()
    world.time.advance(10_000)
    assert stays.joined.generation == 2
    assert away.member_id in world.group().members
    assert new.joined.generation == 2


def test_a_static_group_of_which_nobody_returns_waits_for_sessions_to_end() -> None:
    world = World()
    world.stable(2, instance="i", session_ms=30_000, rebalance_ms=10_000)
    new = world.client(client_id="new", session_ms=6_000)
    new._join({})
    new.leave()
    leader = world.group().leader
    assert leader is not None
    world.coordinator.leave("g", [LeavingMember(leader)])
    assert world.state() == "PreparingRebalance"
    world.time.advance(10_000)
    assert world.state() == "PreparingRebalance"
    world.time.advance(20_000)
    assert world.state() == "Empty"


def test_the_member_id_of_a_static_member_shows_its_instance() -> None:
    world = World()
    client = world.client(instance="host-7", client_id="app").join()
    world.time.advance(0)
    assert client.member_id == "host-7-0"


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    world = World()
    one, two = world.stable(2, instance="i")
    codes = world.coordinator.leave("g", [LeavingMember("", two.instance), LeavingMember("", "unknown")])
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert set(world.group().members) == {one.member_id}
    assert two.heartbeat() is ErrorCode.unknown_member_id


def test_a_static_member_goes_on_as_before_when_its_return_cannot_be_written() -> None:
    world = World()
    _, follower = world.stable(2, instance="i")
    world.log.failure = ErrorCode.kafka_storage_error
    again = world.client(instance=follower.instance).join()
    assert (again.joined.error, again.joined.member_id) == (ErrorCode.not_coordinator, "")
    assert follower.heartbeat() is ErrorCode.none
    world.log.failure = None
    third = world.client(instance=follower.instance).join()
    assert third.joined.error is ErrorCode.none


def test_a_storm_of_members_ends_in_one_generation() -> None:
    world = World(initial_rebalance_delay_ms=100)
    clients = [world.client(client_id=f"c{n}").join() for n in range(200)]
    world.time.advance(200)
    assert {client.joined.generation for client in clients} == {1}
    world.sync_all(clients)
    for client in clients[:100]:
        client.leave()
    rest = clients[100:]
    for client in rest:
        assert client.heartbeat() is ErrorCode.rebalance_in_progress
        client.join()
    assert {client.joined.generation for client in rest} == {2}
    world.sync_all(rest)


def test_groups_of_other_clients_than_consumers_are_not_looked_into() -> None:
    world = World()
    client = world.client(protocols=(("v1", b"\xff" * 3),))
    client.join(protocol_type="connect")
    world.time.advance(0)
    assert client.joined.error is ErrorCode.none
    assert world.group().topics is None


def test_members_with_metadata_that_is_no_subscription_may_be_in_a_group() -> None:
    world = World()
    client = world.client(protocols=(("range", b"\0\1\0\0\0\5"),)).join()
    world.time.advance(0)
    assert client.joined.error is ErrorCode.none
    assert world.group().topics is None
    assert RANGE[0][1]


def test_what_clients_say_is_quoted_and_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A reason with line breaks wrote lines of its own into the broker's log, and terminal escapes came through."""
    caplog.set_level("INFO")
    forged = "bored)\n2026-01-01 ERROR the disk is on fire \x1b[2J" + "x" * 30_000
    world = World()
    group = "g" * 30_000
    me = world.client(group_id=group, client_id=forged[:200], version=0).join()
    world.time.advance(0)
    me.sync()
    world.coordinator.leave(group, [LeavingMember(me.member_id, None, forged)])
    told = [record.getMessage() for record in caplog.records]
    assert any("leaves" in line and "disk is on fire" in line for line in told)
    assert not any("\n" in line or "\x1b" in line for line in told)
    assert max(map(len, told)) < 1000
