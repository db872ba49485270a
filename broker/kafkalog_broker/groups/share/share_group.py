"""A share group in memory, and which of its share partitions have state (Kafka's ShareGroup)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import (
    GroupRecord,
    GroupType,
    RecordKind,
    SharedTopic,
    StatePartitions,
)
from kafkalog_broker.groups.modern.modern_group import ModernGroup, ModernGroupState, ModernMember


class ShareGroup(ModernGroup[ModernMember]):
    """Several members may have the same partition, and nobody waits for one."""

    group_type = GroupType.SHARE
    member_class = ModernMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions: StatePartitions | None = None
        self.initializing_since: dict[UUID, int] = {}
        """When the state of a topic's partitions was begun, in ms."""
        self._all_assigned: bool | None = None

    @property
    def state(self) -> ModernGroupState:
        return ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY

    def last_records(self) -> Iterable[tuple[RecordKind, str]]:
        return [(RecordKind.STATE_PARTITIONS, ""), (RecordKind.EPOCH, "")]

    def replay(self, record: GroupRecord) -> None:
        self._all_assigned = None
        if record.kind is RecordKind.STATE_PARTITIONS:
            self.partitions = record.value
        else:
            super().replay(record)

    def all_assigned(self) -> bool:
        """True if all initialized share partitions of subscribed topics are in the target assignment. Computed once
        after each change, as every heartbeat asks."""
        if self._all_assigned is None:
            assigned: dict[UUID, set[int]] = {}
            for target in self.target.values():
                for topic, indexes in target.items():
                    assigned.setdefault(topic, set()).update(indexes)
            initialized = {} if self.partitions is None else self.partitions.initialized
            self._all_assigned = all(
                shared.name not in self.names or assigned.get(topic) == set(shared.partitions)
                for topic, shared in initialized.items()
            )
        return self._all_assigned


SharedTopics = Mapping[UUID, SharedTopic]


def merged(left: SharedTopics, right: SharedTopics) -> dict[UUID, SharedTopic]:
    topics = dict(left)
    for topic, shared in right.items():
        present = topics[topic].partitions if topic in topics else ()
        topics[topic] = SharedTopic(shared.name, tuple(sorted({*present, *shared.partitions})))
    return topics


def with_initializing(state: StatePartitions, more: SharedTopics) -> StatePartitions:
    deleting = {topic: name for topic, name in state.deleting.items() if topic not in more}
    return StatePartitions(merged(state.initializing, more), state.initialized, deleting)


def without_initializing(state: StatePartitions, failed: SharedTopics) -> StatePartitions:
    initializing = {}
    for topic, shared in state.initializing.items():
        gone = failed[topic].partitions if topic in failed else ()
        if left := tuple(index for index in shared.partitions if index not in gone):
            initializing[topic] = SharedTopic(shared.name, left)
    return replace(state, initializing=initializing)


def without_topics(state: StatePartitions, topics: Collection[UUID]) -> StatePartitions:
    return StatePartitions(
        {topic: shared for topic, shared in state.initializing.items() if topic not in topics},
        {topic: shared for topic, shared in state.initialized.items() if topic not in topics},
        {topic: name for topic, name in state.deleting.items() if topic not in topics},
    )
