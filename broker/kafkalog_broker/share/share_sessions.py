"""Share sessions: the partitions that a member fetches, kept between its requests (KIP-932, Kafka's ShareSessionCache).

The epoch of a session counts the member's requests. The request with INITIAL_EPOCH begins a session, the one with
FINAL_EPOCH ends it. A session also ends with the connection on which it began, see `SharePartitionManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_MAX_EPOCH = 2**31 - 1

MAX_PARTITIONS = 100_000
"""Number of partitions that all sessions together may hold. Kafka bounds only the number of sessions, but a member may
name any number of partitions, including ones that do not exist."""


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


@dataclass(slots=True, eq=False)
class ShareSession:
    """A share session.

    Attributes:
        partitions: The fetched partitions, and whether the next response must include the partition even if it has no
            records.
        epoch: Epoch of the next request.
    """

    key: SessionKey
    partitions: dict[TopicIdPartition, bool]
    epoch: int = 1


class ShareSessions:
    """The share sessions by key. Not thread-safe; call from the event loop."""

    def __init__(self, slots: int) -> None:
        """`slots` is the largest number of sessions (group.share.max.share.sessions)."""
        self._slots = slots
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession:
        """Return a session. Raises BrokerError share_session_not_found."""
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(ErrorCode.share_session_not_found, "The share session was not found.")
        return session

    def begin(self, key: SessionKey, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """Begin a session, which replaces the member's previous one.

        Raises:
            BrokerError: share_session_limit_reached.
        """
        self.remove(key)
        if len(self._sessions) >= self._slots:
            raise BrokerError(ErrorCode.share_session_limit_reached, "The limit of share sessions has been reached.")
        session = self._sessions[key] = ShareSession(key, dict.fromkeys(partitions, False))
        self._check_partition_count(session)
        return session

    def advance(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that neither begins nor ends one, and advance its epoch.

        Raises:
            BrokerError: share_session_not_found, or invalid_share_session_epoch if `epoch` is not the expected one.
        """
        session = self.get(key)
        if session.epoch != epoch:
            raise BrokerError(
                ErrorCode.invalid_share_session_epoch, f"share session epoch {epoch}, expected {session.epoch}"
            )
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def update(
        self, session: ShareSession, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add partitions to a session and remove others.

        Raises:
            BrokerError: share_session_limit_reached; the session is removed then.
        """
        count_before = len(session.partitions)
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        if len(session.partitions) > count_before:
            self._check_partition_count(session)

    def _check_partition_count(self, session: ShareSession) -> None:
        if sum(len(each.partitions) for each in self._sessions.values()) > MAX_PARTITIONS:
            self.remove(session.key)
            message = f"All share sessions together may hold at most {MAX_PARTITIONS} partitions."
            raise BrokerError(ErrorCode.share_session_limit_reached, message)

    def remove(self, key: SessionKey) -> None:
        """Remove a session. No-op if there is none."""
        self._sessions.pop(key, None)

    def is_current(self, session: ShareSession) -> bool:
        """Return whether a session has neither ended nor been replaced."""
        return self._sessions.get(session.key) is session

    def has_sessions(self, group_id: str) -> bool:
        """Return whether any member of a group has a session."""
        return any(key.group_id == group_id for key in self._sessions)
