"""The share groups of one partition of __consumer_offsets: in the log before they are in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import Record
from kafkalog_broker.coordinator.runtime import Timers
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.share.membership import group_records as records
from kafkalog_broker.share.membership.group_records import StatePartitions, TopicInfo, state_partitions_record
from kafkalog_broker.share.membership.heartbeat import LEAVE_EPOCH, Beaten, Heartbeat, beat, check, leave
from kafkalog_broker.share.membership.share_group import ShareGroup, Topics
from kafkalog_broker.share.membership.state_partitions import (
    NOTHING,
    GroupSettings,
    merged,
    with_initialized,
    without_initializing,
    without_topics,
)
from kafkalog_spark.errors import KafkalogError

_log = logging.getLogger(__name__)

Write = Callable[[Sequence[Record]], None]
"""Append one batch to the partition. Raises BrokerError."""

NOT_EMPTY = "The group is not empty."
"""Text of Kafka's NON_EMPTY_GROUP."""


class ShareGroupShard:
    """Not thread-safe. rack: of this broker."""

    def __init__(
        self,
        write: Write,
        timers: Timers,
        topics: Topics,
        settings_of: Callable[[str], GroupSettings],
        now_ms: Callable[[], int],
        rack: str | None,
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._append = write
        self._timers = timers
        self._topics = topics
        self._settings_of = settings_of
        self._now_ms = now_ms
        self._rack = rack

    def load(self, loaded: Mapping[bytes, bytes]) -> None:
        """The last records of all keys. One that cannot be read is logged and left out. Members get the time of a
        session to be heard of."""
        for key, value in loaded.items():
            try:
                self._replay((key, value))
            except KafkalogError as error:
                _log.error("a record of __consumer_offsets is left out: %s (key %s)", error, key.hex())
        for group in self.groups.values():
            for member_id in group.members:
                self._expect(group, member_id)

    def close(self) -> None:
        """The partition is another's, or the broker stops."""
        for group in self.groups.values():
            for member_id in group.members:
                self._timers.cancel((group.group_id, member_id))

    def group(self, group_id: str) -> ShareGroup:
        """Raises BrokerError group_id_not_found."""
        group = self.groups.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    # members

    def heartbeat(self, said: Heartbeat) -> Beaten:
        """Raises BrokerError, and then nothing has changed."""
        check(said)
        if said.member_epoch == LEAVE_EPOCH:
            self.leave(said.group_id, said.member_id)
            return Beaten(LEAVE_EPOCH)
        group = self.groups.get(said.group_id)
        if group is None:
            if said.member_epoch:
                raise BrokerError(ErrorCode.group_id_not_found, f"Share group {said.group_id} not found.")
            group = ShareGroup(said.group_id)
        settings = self._settings_of(said.group_id)
        beaten = beat(group, said, self._topics, settings, self._rack, self._now_ms())
        self._write(beaten.records)
        self._expect(group, said.member_id)
        return beaten

    def leave(self, group_id: str, member_id: str) -> None:
        """Raises BrokerError: group_id_not_found, unknown_member_id."""
        group = self.group(group_id)
        if member_id not in group.members:
            raise BrokerError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")
        self._write(leave(group, member_id, self._topics, self._rack))
        self._timers.cancel((group_id, member_id))

    def _expect(self, group: ShareGroup, member_id: str) -> None:
        def over() -> None:
            if group.group_id in self.groups and member_id in self.groups[group.group_id].members:
                _log.info("share group %.200r: member %.200r was not heard of in time", group.group_id, member_id)
                try:
                    self.leave(group.group_id, member_id)
                except BrokerError as error:
                    _log.warning("share group %.200r: a member stays: %s", group.group_id, error)
                    self._expect(group, member_id)

        delay = self._settings_of(group.group_id).session_timeout_ms
        self._timers.schedule((group.group_id, member_id), delay, over)

    # which share partitions have state. Each raises BrokerError where it cannot be written.

    def set_initialized(self, group_id: str, done: Mapping[UUID, TopicInfo]) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            self._write_state(group_id, with_initialized(group.state, done))

    def set_not_initialized(self, group_id: str, failed: Mapping[UUID, TopicInfo]) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.state is not None and group.state.initializing:
            self._write_state(group_id, without_initializing(group.state, failed))

    def begin_altering(self, group_id: str, topics: Mapping[UUID, TopicInfo]) -> int:
        """Offsets of these are about to be set, of a group without members, which begins to exist by that. The state
        epoch. Raises BrokerError non_empty_group."""
        group = self.groups.get(group_id) or ShareGroup(group_id)
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, NOT_EMPTY)
        if topics:
            state = group.state or NOTHING
            deleting = {topic: name for topic, name in state.deleting.items() if topic not in topics}
            initializing = merged(state.initializing, topics)
            self._write_state(group_id, StatePartitions(initializing, state.initialized, deleting))
        return group.epoch

    def begin_deleting(self, group_id: str, topics: Collection[UUID]) -> dict[UUID, TopicInfo]:
        """Those of `topics` that have state, which is about to be deleted. Raises BrokerError: group_id_not_found,
        non_empty_group."""
        group = self.group(group_id)
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, NOT_EMPTY)
        if group.state is None:
            return {}
        state = group.state
        found = {topic: info for topic, info in state.initialized.items() if topic in topics}
        for topic in topics:
            known = self._topics.by_id(topic)
            if topic in state.deleting and known is not None:
                found[topic] = TopicInfo(known.name, tuple(range(known.partitions)))
        left = {topic: info for topic, info in state.initialized.items() if topic not in found}
        deleting = {**state.deleting, **{topic: info.name for topic, info in found.items()}}
        self._write_state(group_id, StatePartitions(state.initializing, left, deleting))
        return found

    def set_deleted(self, group_id: str, topics: Collection[UUID]) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.state is not None:
            state = group.state
            deleting = {topic: name for topic, name in state.deleting.items() if topic not in topics}
            self._write_state(group_id, StatePartitions(state.initializing, state.initialized, deleting))

    def all_with_state(self, group_id: str) -> dict[UUID, TopicInfo]:
        """For a group that is deleted: whose state has to go first."""
        group = self.group(group_id)
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, NOT_EMPTY)
        if group.state is None:
            return {}
        found = merged(group.state.initialized, group.state.initializing)
        for topic in group.state.deleting:
            known = self._topics.by_id(topic)
            if known is not None:
                found = merged(found, {topic: TopicInfo(known.name, tuple(range(known.partitions)))})
        names = {topic: info.name for topic, info in found.items()}
        self._write_state(group_id, StatePartitions({}, {}, names))
        return found

    def delete(self, group_id: str) -> None:
        """Raises BrokerError: group_id_not_found, non_empty_group."""
        group = self.group(group_id)
        if group.members:
            raise BrokerError(ErrorCode.non_empty_group, NOT_EMPTY)
        self._write(group.tombstones())

    def forget_topics(self, topics: Collection[UUID]) -> None:
        """They are deleted. Raises BrokerError."""
        for group in list(self.groups.values()):
            state = group.state
            if state is not None and any(
                topic in topics for topic in (*state.initializing, *state.initialized, *state.deleting)
            ):
                self._write_state(group.group_id, without_topics(state, topics))

    # the log

    def _write_state(self, group_id: str, state: StatePartitions) -> None:
        self._write([state_partitions_record(group_id, state)])

    def _write(self, written: Sequence[Record]) -> None:
        if written:
            self._append(written)
            for record in written:
                self._replay(record)

    def _replay(self, record: Record) -> None:
        about = records.decode_share_key(record[0])
        if about is None:
            return
        if about.kind == records.GROUP and record[1] is None:
            self.groups.pop(about.group_id, None)
            return
        group = self.groups.get(about.group_id)
        if group is None:
            if record[1] is None:
                return
            group = self.groups[about.group_id] = ShareGroup(about.group_id)
        group.replay(about, record[1], self._now_ms())
