"""Assignors of consumer groups: every partition has one owner, loads are even, and members keep what they have."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.groups.assignors.consumer_assignors import CONSUMER_ASSIGNORS
from kafkalog_broker.groups.assignors.group_spec import AssignedMember, Assignments, GroupSpec

TOPICS = {UUID(int=number): count for number, count in ((1, 7), (2, 1), (3, 12), (4, 3))}
SUBSCRIPTIONS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.sets(st.sampled_from(sorted(TOPICS)), max_size=4), max_size=9
)


def spec(subscriptions: Mapping[str, set[UUID]], before: Assignments) -> GroupSpec:
    members = {
        member: AssignedMember(sorted(topics), before.get(member, {})) for member, topics in subscriptions.items()
    }
    homogeneous = len({frozenset(topics) for topics in subscriptions.values()}) == 1
    return GroupSpec(members, homogeneous, lambda topic: range(TOPICS[topic]))


def check(subscriptions: Mapping[str, set[UUID]], found: Assignments) -> None:
    """Each partition of a topic with subscribers has one owner, who subscribes to it."""
    owned = [
        (topic, part) for member, held in found.items() for topic, parts in held.items() for part in parts
        if topic in subscriptions[member]
    ]  # fmt: skip
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(owned) == sorted((topic, part) for topic in wanted for part in range(TOPICS[topic]))
    assert sum(len(parts) for held in found.values() for parts in held.values()) == len(owned)


def loads(found: Assignments, members: Mapping[str, object]) -> list[int]:
    return [sum(map(len, found.get(member, {}).values())) for member in members]


@pytest.mark.parametrize("name", ["uniform", "range"])
@given(SUBSCRIPTIONS)
def test_every_partition_is_assigned_to_one_subscriber_of_its_topic(
    name: str, subscriptions: dict[str, set[UUID]]
) -> None:
    if subscriptions:
        check(subscriptions, CONSUMER_ASSIGNORS[name](spec(subscriptions, {})))


@given(
    st.sets(st.sampled_from(sorted(TOPICS)), min_size=1),
    st.lists(st.sets(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=12), min_size=1, max_size=4),
)
def test_uniform_stays_even_and_sticky_when_members_join_and_leave(topics: set[UUID], groups: list[set[str]]) -> None:
    before: Assignments = {}
    for members in groups:
        subscriptions = dict.fromkeys(sorted(members), topics)
        kept = {member: held for member, held in before.items() if member in members}
        found = CONSUMER_ASSIGNORS["uniform"](spec(subscriptions, kept))
        check(subscriptions, found)
        sizes = loads(found, subscriptions)
        assert max(sizes) - min(sizes) <= 1
        least = sum(TOPICS[topic] for topic in topics) // len(members)
        for member, held in kept.items():
            had = {(topic, part) for topic, parts in held.items() for part in parts}
            has = {(topic, part) for topic, parts in found[member].items() for part in parts}
            assert len(had & has) >= min(len(had), least), "it gave away what it may have"
        before = found


@given(SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_uniform_keeps_partitions_of_subscribed_topics_within_the_quota(
    first: dict[str, set[UUID]], then: dict[str, set[UUID]]
) -> None:
    """Members that subscribe to the same topics as before, alone, keep all of them."""
    before = CONSUMER_ASSIGNORS["uniform"](spec(first, {})) if first else {}
    kept = {member: held for member, held in before.items() if member in then}
    if not then:
        return
    found = CONSUMER_ASSIGNORS["uniform"](spec(then, kept))
    check(then, found)
    again = CONSUMER_ASSIGNORS["uniform"](spec(then, found))
    assert _as_sets(again) == _as_sets(found), "an assignment that is balanced stays"


def _as_sets(found: Assignments) -> dict[str, dict[UUID, set[int]]]:
    return {
        member: {topic: set(parts) for topic, parts in held.items() if parts}
        for member, held in found.items()
        if any(held.values())
    }


def test_range_assigns_equal_ranges_of_topics_with_equally_many_partitions() -> None:
    one, other = UUID(int=3), UUID(int=5)
    instances = {"a": None, "z": "first", "b": None}
    members = {name: AssignedMember([one, other], {}, instance) for name, instance in instances.items()}
    found = CONSUMER_ASSIGNORS["range"](GroupSpec(members, True, lambda _: range(7)))
    assert found == {
        "z": {one: (0, 1, 2), other: (0, 1, 2)},
        "a": {one: (3, 4), other: (3, 4)},
        "b": {one: (5, 6), other: (5, 6)},
    }
