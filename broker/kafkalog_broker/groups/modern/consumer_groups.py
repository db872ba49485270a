"""The consumer groups of one partition of __consumer_offsets, put together: what its owner asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.messages import CommitRequest, ListedGroup, TransactionalCommit
from kafkalog_broker.groups.modern import consumer_commits
from kafkalog_broker.groups.modern.changes import Change
from kafkalog_broker.groups.modern.classic_members import ClassicMembers
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup, ConsumerGroupState
from kafkalog_broker.groups.modern.describe import describe
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.group_store import GroupStore
from kafkalog_broker.groups.modern.heartbeat_messages import (
    ConsumerHeartbeat,
    DescribedConsumerGroup,
    HeartbeatAnswer,
)
from kafkalog_broker.groups.modern.heartbeats import Heartbeats
from kafkalog_broker.groups.modern.member_changes import remove_group
from kafkalog_broker.groups.modern.sessions import Sessions

KIND = "consumer"
"""The type of these groups, and their protocol type."""


class ConsumerGroups:
    """`classic`: members of these groups that do not speak the consumer protocol yet."""

    def __init__(self, store: GroupStore, loaded: Sequence[Change] = ()) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._heartbeats = Heartbeats(store, self._sessions)
        self.classic = ClassicMembers(store, self._sessions, self._heartbeats)
        store.load(loaded)

    def begin(self) -> None:
        """Begin the time-outs of the members that were loaded."""
        for group in self._store.groups.values():
            self._sessions.begin_all(group)

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._store.groups.get(group_id)

    def all(self) -> list[ConsumerGroup]:
        return list(self._store.groups.values())

    def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """Raises BrokerError."""
        return self._heartbeats.handle(request)

    def list_groups(self) -> list[ListedGroup]:
        return [ListedGroup(group.group_id, KIND, group.state.value, KIND) for group in self._store.groups.values()]

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Never raises: errors are in the answer."""
        try:
            group = self._store.find(group_id)
        except BrokerError as error:
            return DescribedConsumerGroup(group_id, error=error.code, error_message=error.what)
        return describe(group, self._store.assignors[0], self._store.topics)

    def delete(self, group: ConsumerGroup) -> None:
        """Raises BrokerError (NON_EMPTY_GROUP)."""
        if group.state is not ConsumerGroupState.EMPTY:
            raise BrokerError(ErrorCode.non_empty_group, f"group {group.group_id!r} is {group.state.value}")
        draft = Draft(group.group_id)
        remove_group(draft, group)
        draft.then(lambda: self._heartbeats.regexes.forget(group.group_id))
        self._store.commit(draft)

    def forget(self, group_id: str, member_ids: Sequence[str]) -> None:
        """It is a classic group by now, of these members."""
        self._sessions.forget(group_id, member_ids)
        self._heartbeats.regexes.forget(group_id)

    # ---- offsets

    def check_commit(self, group: ConsumerGroup, request: CommitRequest) -> None:
        """Raises BrokerError (consumer_commits.check_commit)."""
        partitions = ((part.topic_id, part.partition) for part in request.partitions)
        version = consumer_commits.FIRST_VERSION if request.knows_group_id_not_found else 0
        consumer_commits.check_commit(group, request.member_id, request.generation, partitions, version)

    def check_transactional_commit(self, group: ConsumerGroup, commit: TransactionalCommit) -> None:
        """Raises BrokerError (consumer_commits.check_transactional_commit)."""
        partitions: list[tuple[UUID | None, int]] = [(part.topic_id, part.partition) for part in commit.partitions]
        consumer_commits.check_transactional_commit(
            group, commit.member_id, commit.generation, commit.group_instance_id, partitions
        )
