"""The groups of one type in one partition of __consumer_offsets, and the services that their requests use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from kafkalog_broker.coordinator.coordinator_executor import CoordinatorExecutor
from kafkalog_broker.coordinator.coordinator_timer import CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group_manager import ClassicGroupManager
from kafkalog_broker.groups.classic.classic_group_records import group_key
from kafkalog_broker.groups.modern.group_changes import GroupChanges, GroupResult
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_records import GroupRecord, GroupType, RecordKind
from kafkalog_broker.groups.modern.modern_group import ModernGroup

_log = logging.getLogger(__name__)

GroupT = TypeVar("GroupT", bound=ModernGroup[Any])


class ModernGroups(Generic[GroupT]):
    """Groups by ID, changed only by `replay`. Not thread-safe; call from the event loop.

    Attributes:
        classic: The classic groups of the same partition.
    """

    def __init__(
        self,
        group_type: GroupType,
        new_group: Callable[[str], GroupT],
        context: GroupContext,
        timer: CoordinatorTimer,
        executor: CoordinatorExecutor,
        classic: ClassicGroupManager,
        type_of: Callable[[str], GroupType | None],
        remove_member: RemoveMember[GroupT],
    ) -> None:
        """Create without groups.

        Args:
            new_group: Makes an empty group with an ID.
            type_of: Returns the type of a group of the same partition, or None if there is no group with that ID.
            remove_member: See `RemoveMember`. Called when a timer of a member expires.
        """
        self.group_type = group_type
        self.groups: dict[str, GroupT] = {}
        self.new_group = new_group
        self.context = context
        self.timer = timer
        self.executor = executor
        self.classic = classic
        self._type_of = type_of
        self.remove_member = remove_member

    def group(self, group_id: str) -> GroupT:
        """Return a group. Raises BrokerError group_id_not_found, also if the group is of another type."""
        group = self.groups.get(group_id)
        if group is None:
            self.check_type(group_id)
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    def group_for_heartbeat(self, group_id: str, *, is_joining: bool) -> GroupT:
        """Return the group of a heartbeat. A new group is added to `groups` when its first records are replayed.

        Raises:
            BrokerError: group_id_not_found if the group is of another type, or does not exist and the member does not
                join.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        self.check_type(group_id)
        if not is_joining:
            type_name = self.group_type.value.capitalize()
            raise BrokerError(ErrorCode.group_id_not_found, f"{type_name} group {group_id} not found.")
        return self.new_group(group_id)

    def check_type(self, group_id: str) -> None:
        """Raise BrokerError group_id_not_found if a group of another type has the ID."""
        if self._type_of(group_id) not in (None, self.group_type):
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} is not a {self.group_type.value} group.")

    def replay(self, record: GroupRecord) -> None:
        group = self.groups.get(record.group_id)
        if record.value is None and (group is None or record.kind is RecordKind.EPOCH):
            self.groups.pop(record.group_id, None)
            return
        if group is None:
            group = self.groups[record.group_id] = self.new_group(record.group_id)
        group.replay(record)


RemoveMember = Callable[[ModernGroups[GroupT], GroupT, Any], GroupResult[None]]
"""Returns the records and callbacks that remove a member from a group."""


def new_group_replacing_classic(groups: ModernGroups[GroupT], changes: GroupChanges) -> GroupT:
    """Replace an empty classic group by a new group, which takes over its committed offsets (KIP-1251)."""
    classic = groups.classic.groups[changes.group_id]
    changes.records.append((group_key(changes.group_id), None))
    changes.on_commit(lambda: groups.classic.forget(classic))
    return groups.new_group(changes.group_id)


def existing_group_records(records: Iterable[GroupRecord]) -> list[GroupRecord]:
    """Return the records of groups that have an epoch record.

    A group without epoch record was removed: Kafka writes the tombstones of a group in one batch, and a compacted log
    may still have some of its other records.
    """
    records = list(records)
    existing = {record.group_id for record in records if record.kind is RecordKind.EPOCH}
    for group_id in {record.group_id for record in records} - existing:
        _log.warning("group %.200r has no epoch in the log and is skipped", group_id)
    return [record for record in records if record.group_id in existing]
