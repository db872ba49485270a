"""A share group (Kafka's ShareGroup)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kafkalog_broker.groups.modern.group_records import NO_STATE, GroupRecord, GroupType, RecordKind
from kafkalog_broker.groups.modern.modern_group import ModernGroup, ModernGroupState, ModernMember


class ShareGroup(ModernGroup[ModernMember]):
    """A group in which several members may be assigned the same partition, so that no member waits for one."""

    group_type = GroupType.SHARE

    def __init__(self, group_id: str, now_ms: Callable[[], int]) -> None:
        super().__init__(group_id, ModernMember)
        self.partitions = NO_STATE
        """Share partitions whose state is being initialized, is initialized, or is being deleted."""
        self.initializing_since: dict[UUID, int] = {}
        """Time in ms at which the initialization of a topic's share partitions was recorded."""
        self._has_all_assigned: bool | None = None  # cached result of has_all_assigned()
        self._now_ms = now_ms

    @property
    def state(self) -> ModernGroupState:
        return ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY

    def replay(self, record: GroupRecord) -> None:
        self._has_all_assigned = None
        if record.kind is RecordKind.STATE_PARTITIONS:
            self.partitions = record.value or NO_STATE
            if record.value is not None:
                self.initializing_since = dict.fromkeys(record.value.initializing, self._now_ms())
        else:
            super().replay(record)

    def has_all_assigned(self) -> bool:
        """Return whether the target assignment has all initialized partitions of the subscribed topics.

        Cached, because every heartbeat needs it.
        """
        if self._has_all_assigned is None:
            assigned: dict[UUID, set[int]] = {}
            for target in self.target.values():
                for topic_id, indexes in target.items():
                    assigned.setdefault(topic_id, set()).update(indexes)
            self._has_all_assigned = all(
                shared.name not in self.subscribed_topics or assigned.get(topic_id) == set(shared.partitions)
                for topic_id, shared in self.partitions.initialized.items()
            )
        return self._has_all_assigned
