"""Assignments computed in the background are dropped if the group has changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from kafkalog_broker.groups.modern.heartbeat_response import HeartbeatResponse
from tests.broker.groups.consumer.test_consumer_group_machine import Groups

PARTITIONS = 4_000
"""So many that an assignment is made in the background."""


class LateGroups(Groups):
    """Groups whose background work waits until `work` is called."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        super().__init__()
        self.topics.set("orders", PARTITIONS)

    def start(self) -> Any:
        coordinator = super().start()
        coordinator.context.background = lambda compute, done: self.waiting.append((compute, done))
        return coordinator

    def take(self) -> Callable[[], None]:
        """Return the pending assignment, computed but not yet applied."""
        ((compute, done),) = self.waiting
        self.waiting.clear()
        found = compute()
        return lambda: done(found)

    def targets(self) -> dict[str, int]:
        """Return the target partitions of each member."""
        seen = self.described()
        return {name: sum(map(len, seen.target.get(name, {}).values())) for name in seen.members}

    def settle(self, **instances: str) -> None:
        """Members beat and give up what they must, until nothing changes."""
        held: dict[str, dict[UUID, set[int]]] = {name: {} for name in instances}
        for _ in range(6):
            for name, instance in instances.items():
                epoch = self.described().members[name].epoch
                answer: HeartbeatResponse = self.heartbeat(name, epoch, instance_id=instance, owned=held[name])
                if answer.assignment is not None:
                    held[name] = {topic: set(parts) for topic, parts in answer.assignment.items()}
                if self.waiting:
                    self.take()()


def test_static_member_that_returns_with_a_new_member_id_keeps_its_partitions() -> None:
    """Its group keeps its epoch, so that nothing would make another assignment."""
    world = LateGroups()
    world.join("a", "orders", instance_id="first")
    world.take()()
    world.heartbeat("a", 1)
    assert world.targets() == {"a": PARTITIONS}
    world.join("b", "orders", instance_id="second")
    late = world.take()
    world.heartbeat("a", -2, instance_id="first")
    world.join("a2", "orders", instance_id="first")
    before = world.described().assignment_epoch
    late()
    assert world.described().assignment_epoch == before
    assert world.targets()["a2"] == PARTITIONS
    world.settle(a2="first", b="second")
    assert world.targets() == {"a2": PARTITIONS // 2, "b": PARTITIONS // 2}
    assert world.described().state == "Stable"


def test_older_assignment_does_not_replace_a_newer_one() -> None:
    world = LateGroups()
    world.join("a", "orders")
    late = world.take()
    world.topics.remove("orders")
    newer = world.heartbeat("a", 1).member_epoch  # nothing to compute for long: at once
    before = world.described()
    assert before.assignment_epoch == before.epoch == newer > 1
    late()
    assert world.described() == before
    assert world.heartbeat("a", newer).member_epoch == newer


def test_assignment_for_a_deleted_group_is_dropped_after_the_group_was_created_again() -> None:
    world = LateGroups()
    world.join("a", "orders")
    late = world.take()
    world.heartbeat("a", -1)
    world.coordinator.shard("g").delete("g")
    world.join("a", "orders")
    before = world.described()
    late()
    assert world.described() == before
    assert world.targets() == {"a": 0}
