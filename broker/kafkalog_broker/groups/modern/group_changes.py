"""Changes that a request makes to one group, collected in its steps and committed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.groups.modern.group_records import (
    GroupRecord,
    GroupType,
    Partitions,
    RecordKind,
    ResolvedRegex,
    StatePartitions,
    current_assignment_fields,
    member_fields,
)
from kafkalog_broker.groups.modern.modern_group import ModernMember

T = TypeVar("T")

AnyRecord = GroupRecord | Record
"""A record of a consumer, share or streams group, or the encoded record of a classic group."""
GroupResult = CoordinatorResult[AnyRecord, T]


class GroupChanges:
    """Records, in the order in which Kafka writes them, and functions to call after the commit."""

    def __init__(self, group_type: GroupType, group_id: str) -> None:
        self.group_type = group_type
        self.group_id = group_id
        self.records: list[AnyRecord] = []
        self._on_commit: list[Callable[[], None]] = []

    def result(self, response: T) -> GroupResult[T]:
        return CoordinatorResult(self.records, response, self._on_commit)

    def on_commit(self, call: Callable[[], None]) -> None:
        self._on_commit.append(call)

    def put_member(self, member: ModernMember) -> None:
        self._put(RecordKind.MEMBER, member.member_id, member_fields(self.group_type, member))

    def put_current_assignment(self, member: ModernMember) -> None:
        self._put(RecordKind.CURRENT, member.member_id, current_assignment_fields(self.group_type, member))

    def put_target_assignment(self, member_id: str, partitions: Partitions) -> None:
        self._put(RecordKind.TARGET, member_id, partitions)

    def put_target_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self._put(RecordKind.TARGET_EPOCH, "", (epoch, timestamp_ms))

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        self._put(RecordKind.EPOCH, "", (epoch, metadata_hash))

    def remove_member(self, member_id: str) -> None:
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self._put(kind, member_id, None)

    def remove_members_of_group(self, member_ids: Iterable[str]) -> None:
        """Remove all members and the target assignment of a group, in the order in which Kafka removes a group."""
        member_ids = list(member_ids)
        for kind in (RecordKind.CURRENT, RecordKind.TARGET):
            for member_id in member_ids:
                self._put(kind, member_id, None)
        self._put(RecordKind.TARGET_EPOCH, "", None)
        for member_id in member_ids:
            self._put(RecordKind.MEMBER, member_id, None)

    def remove_epoch(self) -> None:
        """Remove the epoch of a group. A group without epoch record does not exist."""
        self._put(RecordKind.EPOCH, "", None)

    def put_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self._put(RecordKind.REGEX, regex, resolved)

    def remove_regex(self, regex: str) -> None:
        self._put(RecordKind.REGEX, regex, None)

    def remove_topics_metadata(self) -> None:
        """Remove the topics' metadata that Kafka 4.0 wrote for a consumer group."""
        self._put(RecordKind.TOPICS, "", None)

    def put_state_partitions(self, state: StatePartitions) -> None:
        self._put(RecordKind.STATE_PARTITIONS, "", state)

    def remove_state_partitions(self) -> None:
        self._put(RecordKind.STATE_PARTITIONS, "", None)

    def put_streams_epoch(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int,
        assignment_configs: tuple[tuple[str, str], ...],
    ) -> None:  # fmt: skip
        self._put(RecordKind.EPOCH, "", (epoch, metadata_hash, validated_topology_epoch, assignment_configs))

    def put_topology(self, topology: Any) -> None:
        self._put(RecordKind.TOPOLOGY, "", topology)

    def remove_topology(self) -> None:
        self._put(RecordKind.TOPOLOGY, "", None)

    def _put(self, kind: RecordKind, name: str, value: object) -> None:
        """Add a record; a value of None is a tombstone."""
        self.records.append(GroupRecord(self.group_type, kind, self.group_id, name, value))
