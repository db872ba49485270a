"""Fetch sessions (KIP-227): the broker remembers what a consumer fetches; requests and answers carry changes.

A request names (session id, epoch):

    id 0, epoch -1   no session: all partitions are in the request, all in the answer
    id 0, epoch 0    open one: as above, and the answer carries the new session's id (0 when there is no room)
    id n, epoch -1   close session n, and answer without one
    id n, epoch 0    close session n, open another
    id n, epoch e    the next request of session n: e must be the one expected, which then grows (after 2**31-1 comes 1)
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.errors import BrokerError

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
_KEEP_MS = 120_000
"""ms for which a session in use keeps its place when the cache is full (min.incremental.fetch.session.eviction.ms)."""

TopicKey = Hashable
"""A topic's name (requests up to v12) or id (from v13 on)."""


class FetchPartition(NamedTuple):
    """What a request says of one partition. max_bytes: partition_max_bytes; current_leader_epoch: -1 unknown."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int


@dataclass(slots=True)
class _Cached:
    """A partition of a session: the latest request of it, and what the client was last told."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    told_error: bool = False


class Session:
    """One consumer's partitions, in the order in which they will be read next."""

    def __init__(self, session_id: int, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.last_used_ms = now_ms
        self._partitions: OrderedDict[tuple[TopicKey, int], _Cached] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, wanted: Iterable[FetchPartition], forgotten: Iterable[tuple[TopicKey, int]]) -> None:
        """Take in what a request adds, changes and drops."""
        for request in wanted:
            key = (request.topic, request.partition)
            if (cached := self._partitions.get(key)) is None:
                self._partitions[key] = _Cached(request)
            else:
                cached.request = request
        for gone in forgotten:
            self._partitions.pop(gone, None)

    def __iter__(self) -> Iterator[FetchPartition]:
        return iter([cached.request for cached in self._partitions.values()])

    def must_tell(
        self, topic: TopicKey, partition: int, *, has_records: bool, error: bool, high_watermark: int, log_start: int
    ) -> bool:
        """Whether an incremental answer names this partition; remembers what it then says.

        A partition that gave records goes behind the others, so that none starves when answers are full.
        """
        cached = self._partitions.get((topic, partition))
        if cached is None:
            return True
        tell = has_records or error or cached.told_error
        tell = tell or cached.high_watermark != high_watermark or cached.log_start_offset != log_start
        cached.high_watermark, cached.log_start_offset, cached.told_error = high_watermark, log_start, error
        if has_records:
            self._partitions.move_to_end((topic, partition))
        return tell


@dataclass(frozen=True, slots=True)
class FetchContext:
    """How one request is answered. session: None for a request without one; incremental: answer changes only."""

    partitions: list[FetchPartition]
    session: Session | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """The cache of sessions, `slots` at most (max.incremental.fetch.session.cache.slots): a full cache gives up the one
    that was not used for longest, if that is two minutes ago, and otherwise opens no more."""

    def __init__(self, slots: int, new_id: Callable[[], int] | None = None) -> None:
        self._slots = slots
        self._new_id = new_id or (lambda: random.randint(1, _MAX_EPOCH))
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the one not used for longest first

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: list[FetchPartition],
        forgotten: Iterable[tuple[TopicKey, int]],
        *,
        by_id: bool,
        now_ms: int,
    ) -> FetchContext:
        """Find, open or close the session of a request. by_id: the request names topics by id (v13 on).

        Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            session = self._open(wanted, by_id, now_ms)
            return FetchContext(wanted, session)
        found = self._sessions.get(session_id)
        if found is None:
            raise BrokerError(ErrorCode.fetch_session_id_not_found, f"there is no fetch session {session_id}")
        if found.epoch != epoch:
            raise BrokerError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} expects epoch {found.epoch}, the request says {epoch}",
            )
        if found.by_id != by_id:
            raise BrokerError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} was opened with topic {'ids' if found.by_id else 'names'}",
            )
        found.update(wanted, forgotten)
        found.epoch = 1 if found.epoch == _MAX_EPOCH else found.epoch + 1
        found.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext(list(found), found, incremental=True)

    def _open(self, wanted: list[FetchPartition], by_id: bool, now_ms: int) -> Session | None:
        if not wanted or self._slots <= 0:
            return None
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms < _KEEP_MS:
                return None
            del self._sessions[oldest.id]
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, by_id, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session
