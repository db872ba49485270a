"""Groups that change their protocol, over virtual time: time-outs, policies, crashes. What a real Kafka answers is in
test_consumer_group_answers.py, what clients do in tests/broker/clients/test_consumer_protocol.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import LeavingMember
from kafkalog_broker.groups.classic.consumer_protocol import encode_assignment, parse_assignment
from tests.broker.groups.consumer.test_consumer_group_machine import SESSION_MS, Groups
from tests.broker.groups.helpers.consumer_script import subscription
from tests.broker.groups.helpers.virtual_time import Client

PROTOCOLS = (("range", subscription("orders", owned={})),)
EVERYTHING = encode_assignment({"orders": range(6)}, 3)


def classic(world: Groups, **how: Any) -> Client:
    """A stable classic group of one member, which has all of orders."""
    member = world.client(protocols=PROTOCOLS, **how).join()
    world.time.advance(0)
    member.sync(assignments=((member.member_id, EVERYTHING),))
    assert member.syncs[-1].error_code is ErrorCode.none
    return member


def kind(world: Groups) -> tuple[str, str]:
    (group,) = world.coordinator.list_groups()
    return group.group_type, group.group_state


def test_classic_member_that_died_before_the_upgrade_is_removed_after_its_session_timeout() -> None:
    world = Groups()
    classic(world, session_ms=10_000)
    assert world.join("new", "orders").assignment == {}
    world.time.advance(9_999)
    assert len(world.described().members) == 2
    world.time.advance(1)
    answer = world.heartbeat("new", 2)
    assert sum(map(len, (answer.assignment or {}).values())) == 6
    assert world.time.waiting == 1, "the session of the one member that is left"


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DISABLED"])
def test_upgrade_disallowed_by_the_migration_policy_is_refused(policy: str) -> None:
    world = Groups()
    context = world.coordinator.context
    context.config = dataclasses.replace(context.config, group_consumer_migration_policy=policy)
    member = classic(world)
    with pytest.raises(BrokerError) as refused:
        world.join("new", "orders")
    assert refused.value.code is ErrorCode.group_id_not_found
    assert kind(world) == ("classic", "Stable")
    assert member.heartbeat() is ErrorCode.none


@pytest.mark.parametrize(("policy", "after"), [("upgrade", "consumer"), ("bidirectional", "classic")])
def test_downgrade_depends_on_the_migration_policy(policy: str, after: str) -> None:
    world = Groups()
    context = world.coordinator.context
    context.config = dataclasses.replace(context.config, group_consumer_migration_policy=policy)
    classic(world)
    world.join("new", "orders")
    world.heartbeat("new", -1)
    assert kind(world)[0] == after
    world.crash()
    assert kind(world)[0] == after


def test_group_with_user_data_of_another_assignor_is_not_upgraded() -> None:
    world = Groups()
    member = world.client(protocols=PROTOCOLS).join()
    world.time.advance(0)
    member.sync(assignments=((member.member_id, EVERYTHING[:-4] + b"\0\0\0\1x"),))
    with pytest.raises(BrokerError, match="unsupported custom assignor"):
        world.join("new", "orders")
    assert kind(world) == ("classic", "Stable")


def test_upgrade_that_cannot_be_written_leaves_the_classic_group_unchanged() -> None:
    world = Groups()
    member = classic(world)
    world.log.failure = ErrorCode.not_leader_or_follower
    with pytest.raises(BrokerError):
        world.join("new", "orders")
    world.log.failure = None
    assert kind(world) == ("classic", "Stable")
    assert member.heartbeat() is ErrorCode.none


def test_classic_member_that_does_not_join_again_is_removed() -> None:
    world = Groups()
    member = classic(world, session_ms=30_000, rebalance_ms=5_000)
    world.join("new", "orders")
    assert member.heartbeat() is ErrorCode.rebalance_in_progress
    world.time.advance(4_999)
    assert member.heartbeat() is ErrorCode.rebalance_in_progress
    world.time.advance(1)
    assert member.heartbeat() is ErrorCode.unknown_member_id


def test_crash_during_a_migration_keeps_all_members() -> None:
    world = Groups()
    member = classic(world)
    world.join("new", "orders")
    world.crash()
    assert kind(world) == ("consumer", "Reconciling")
    member.protocols = (("range", subscription("orders", owned={"orders": [0, 1, 2]})),)
    member.join()
    assert member.joined.generation_id == 2
    member.sync(assignments=())
    assert parse_assignment(member.syncs[-1].assignment)[0] == {"orders": (0, 1, 2)}
    assert member.heartbeat() is ErrorCode.none
    assert world.heartbeat("new", 2).member_epoch == 2
    assert kind(world) == ("consumer", "Stable")
    world.time.advance(1_000)
    assert world.leave(LeavingMember(member.member_id)) == [ErrorCode.none]
    answer = world.heartbeat("new", 2)
    assert sum(map(len, (answer.assignment or {}).values())) == 6


def test_administrator_removes_a_static_member_of_either_protocol() -> None:
    world = Groups()
    world.join("a", "orders", instance_id="i")
    assert world.leave(LeavingMember("", "i"), LeavingMember("", "j")) == [
        ErrorCode.none, ErrorCode.unknown_member_id
    ]  # fmt: skip
    assert kind(world) == ("consumer", "Empty")
    world.time.advance(SESSION_MS)
    assert world.time.waiting == 0
