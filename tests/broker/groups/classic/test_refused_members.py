"""Requests that a classic group refuses: unknown members, other generations or protocols, and full groups."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_requests import JoinResponse, LeavingMember, SyncResponse
from tests.broker.groups.helpers.virtual_time import World, config_of, subscription


def test_group_chooses_the_protocol_preferred_by_most_members() -> None:
    world = World()
    metadata = subscription("orders")
    votes = [("a", "b", "c"), ("b", "a"), ("c", "b", "a"), ("b", "a", "c")]
    clients = [
        world.client(client_id=f"c{n}", protocols=tuple((name, metadata) for name in names)).join()
        for n, names in enumerate(votes)
    ]
    world.time.advance(0)
    # c is not known to all; so the third votes for b
    assert {client.joined.protocol_name for client in clients} == {"b"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("roundrobin", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_member_with_unsupported_protocols_is_refused(changes: dict[str, object]) -> None:
    world = World()
    (member,) = world.stable(1)
    other = world.client(client_id="other")
    other.join(**changes)
    assert other.joined.error_code is ErrorCode.inconsistent_group_protocol
    assert member.heartbeat() is ErrorCode.none


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_join_of_an_empty_group_without_a_protocol_is_refused(changes: dict[str, object]) -> None:
    client = World().client()
    client.join(**changes)
    assert client.joined == JoinResponse(ErrorCode.inconsistent_group_protocol)


def test_empty_group_can_change_its_protocol_type() -> None:
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
def test_sync_group_of_an_unknown_or_fenced_member_is_refused(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    (client,) = world.stable(1)
    client.sync(**changes)
    assert client.syncs[-1].error_code is error


def test_sync_group_in_the_join_phase_gets_rebalance_in_progress() -> None:
    world = World()
    leader, _ = world.stable(2)
    world.client(client_id="new").join()
    leader.sync()
    assert leader.syncs[-1] == SyncResponse(ErrorCode.rebalance_in_progress)


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
def test_heartbeat_of_an_unknown_or_fenced_member_is_refused(
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
def test_join_group_of_an_unknown_or_fenced_member_is_refused(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    client = world.client()
    client.join(**changes)
    assert client.joined.error_code is error
    assert world.coordinator.list_groups() == []


def test_new_member_of_a_full_group_is_refused() -> None:
    world = World(group_max_size=2)
    members = world.stable(2)
    late = world.client(client_id="late", version=3).join()
    assert late.joined == JoinResponse(ErrorCode.group_max_size_reached)
    assert [member.heartbeat() for member in members] == [ErrorCode.none] * 2


def test_full_group_keeps_the_members_that_join_again_first() -> None:
    world = World(group_max_size=4)
    members = world.stable(4)
    world.config = config_of(group_max_size=2)
    world.crash()
    assert world.state() == "PreparingRebalance"
    for member in members:
        member.join()
    assert [member.joined.error_code for member in members] == [ErrorCode.none] * 2 + [
        ErrorCode.group_max_size_reached
    ] * 2
    assert len(world.group().members) == 2


def test_leave_group_returns_an_error_code_for_each_member() -> None:
    world = World()
    one, two, three = world.stable(3)
    codes = world.leave(LeavingMember(one.member_id), LeavingMember("stranger"), LeavingMember(two.member_id, "i"))
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id]
    assert three.heartbeat() is ErrorCode.rebalance_in_progress
    assert set(world.group().members) == {two.member_id, three.member_id}


def test_pending_member_can_leave_the_group() -> None:
    world = World()
    client = world.client()
    client._join({})
    assert client.leave() is ErrorCode.none
    assert world.group().pending_members == set()
    assert world.time.waiting == 0


def test_leave_of_an_unknown_group_is_unknown_member_id() -> None:
    assert World().client(member_id="m").leave() is ErrorCode.unknown_member_id


def test_join_of_a_new_group_that_cannot_be_written_is_an_error() -> None:
    world = World()
    world.log.failure = ErrorCode.kafka_storage_error
    client = world.client().join()
    assert client.joined == JoinResponse(ErrorCode.not_coordinator)
    assert world.coordinator.list_groups() == []


def test_members_join_again_when_their_assignment_cannot_be_written() -> None:
    world = World()
    clients = [world.client(client_id=f"c{n}").join() for n in range(2)]
    world.time.advance(0)
    leader, follower = sorted(clients, key=lambda client: not client.leads)
    follower.sync()
    world.log.failure = ErrorCode.not_enough_replicas
    leader.sync()
    assert leader.syncs == follower.syncs == [SyncResponse(ErrorCode.coordinator_not_available)]
    assert world.state() == "PreparingRebalance"
