"""Share sessions (KIP-932): which partitions a member fetches, remembered between its requests (ShareSessionCache).

A session belongs to a connection and ends with it. Its epoch counts the requests: 0 begins one, -1 ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_LAST_EPOCH = 2**31 - 1
MAX_PARTITIONS = 100_000
"""Partitions that all sessions together remember, of some 200 bytes each. Kafka bounds only the number of sessions; a
member may name any number of partitions, also such as there are not."""


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


Partition = tuple[UUID, int]  # topic id and partition


class ShareSession:
    """partitions: and whether the next answer has to name them, whatever there is to say."""

    __slots__ = ("epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[Partition]) -> None:
        self.key = key
        self.epoch = 1
        self.partitions: dict[Partition, bool] = dict.fromkeys(partitions, False)


class ShareSessions:
    """At most `slots` of them (group.share.max.share.sessions)."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession:
        """Raises BrokerError share_session_not_found."""
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(ErrorCode.share_session_not_found, "The share session was not found.")
        return session

    def begin(self, key: SessionKey, partitions: Iterable[Partition]) -> ShareSession:
        """In the place of the one before. Raises BrokerError share_session_limit_reached."""
        self.remove(key)
        if len(self._sessions) >= self._slots:
            raise BrokerError(ErrorCode.share_session_limit_reached, "The limit of share sessions has been reached.")
        session = self._sessions[key] = ShareSession(key, partitions)
        self._check_room(session)
        return session

    def update(self, session: ShareSession, added: Iterable[Partition], forgotten: Iterable[Partition]) -> None:
        """Raises BrokerError share_session_limit_reached, and then the session is over."""
        before = len(session.partitions)
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        if len(session.partitions) > before:
            self._check_room(session)

    def _check_room(self, session: ShareSession) -> None:
        if sum(len(each.partitions) for each in self._sessions.values()) > MAX_PARTITIONS:
            self.remove(session.key)
            what = f"Share sessions remember {MAX_PARTITIONS} partitions at most, all together."
            raise BrokerError(ErrorCode.share_session_limit_reached, what)

    def next_request(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a request that is neither its first nor its last. Raises BrokerError:
        share_session_not_found, invalid_share_session_epoch."""
        session = self.get(key)
        if session.epoch != epoch:
            raise BrokerError(
                ErrorCode.invalid_share_session_epoch, f"share session epoch {epoch}, expected {session.epoch}"
            )
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def remove(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)

    def is_current(self, session: ShareSession) -> bool:
        return self._sessions.get(session.key) is session

    def has_members(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)
