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
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.hot_messages import RefusedPartitions

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
_KEEP_MS = 120_000
"""ms for which a session in use keeps its place when the cache is full (min.incremental.fetch.session.eviction.ms)."""
MAX_PARTITIONS = 100_000
"""Partitions that all sessions together remember, of about 400 bytes each. Kafka bounds only the number of sessions; a
client may name a million partitions in each. Without a session a consumer names its partitions in every request."""

TopicKey = Hashable  # a topic's name (requests up to v12) or id (from v13 on)
PartitionKey = tuple[TopicKey, int]


class FetchPartition(NamedTuple):
    """A partition of a request. max_bytes: partition_max_bytes; current_leader_epoch: -1 unknown;
    last_fetched_epoch: of the batch before fetch_offset, of those who keep what they fetch, else -1 (KIP-595)."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1


Wanted = Mapping[PartitionKey, FetchPartition]
"""Partitions of a request, each once: of several mentions the last one counts, in the place of the first, as
in Kafka (FetchRequest.fetchData)."""

_NOTHING_TOLD = (-1, -1, False)  # high watermark, log start offset, whether there was an error


class Session:
    """A consumer's partitions, in the order in which they will be read next."""

    def __init__(self, session_id: int, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self._wanted: dict[PartitionKey, FetchPartition] = {}
        self._told: dict[PartitionKey, tuple[int, int, bool]] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def update(self, wanted: Wanted, forgotten: Iterable[PartitionKey]) -> None:
        self._wanted.update(wanted)
        for gone in forgotten:
            self._wanted.pop(gone, None)
            self._told.pop(gone, None)

    def partitions(self) -> list[FetchPartition]:
        return list(self._wanted.values())

    def must_tell(
        self, topic: TopicKey, partition: int, *, has_records: bool, error: bool, high_watermark: int, log_start: int
    ) -> bool:
        """True when an incremental answer names this partition; remembers what it then says. One that gave records
        goes to the end, after the others, so that none starves when answers are full."""
        key = (topic, partition)
        wanted = self._wanted.get(key)
        if wanted is None:
            return True
        before = self._told.get(key, _NOTHING_TOLD)
        self._told[key] = (high_watermark, log_start, error)
        if has_records:
            del self._wanted[key]
            self._wanted[key] = wanted
        return has_records or error or before != (high_watermark, log_start, False)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """How one request is answered. session: None for a request without one; incremental: answer changes only; refused:
    partitions of a request without a session that are not there, by topic."""

    partitions: Sequence[FetchPartition]
    session: Session | None = None
    incremental: bool = False
    refused: Mapping[TopicKey, RefusedPartitions] = field(default_factory=dict)

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """The cache of sessions, `slots` at most (max.incremental.fetch.session.cache.slots), with `max_partitions` in all.
    A full cache gives up, as Kafka's does, the session that was not used for longest, if that is more than two minutes
    ago; else the smallest of those opened more than two minutes ago, if the new one is larger. Otherwise the request is
    answered without a session."""

    def __init__(
        self, slots: int, new_id: Callable[[], int] | None = None, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self._slots = slots
        self._new_id = new_id or (lambda: random.randint(1, _MAX_EPOCH))
        self._max_partitions = max_partitions
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the one not used for longest first
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: Wanted,
        forgotten: Iterable[PartitionKey],
        *,
        by_id: bool,
        now_ms: int,
    ) -> FetchContext:
        """Find, open or close the session of a request. by_id: it names topics by id (v13 on). A session that has no
        partition left is closed. Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND (also for one that grows too large: it
        is closed, and the client begins again), INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(list(wanted.values()))
            return FetchContext(list(wanted.values()), self._open(wanted, by_id, now_ms))
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
        if wanted or forgotten:
            self._update(found, wanted, forgotten)
        if not found:
            self._remove(session_id)
            return FetchContext(())
        found.epoch = 1 if found.epoch == _MAX_EPOCH else found.epoch + 1
        found.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext(found.partitions(), found, incremental=True)

    def close(self, session_id: int) -> None:
        if session_id in self._sessions:
            self._remove(session_id)

    def _update(self, session: Session, wanted: Wanted, forgotten: Iterable[PartitionKey]) -> None:
        before = len(session)
        session.update(wanted, forgotten)
        if (after := len(session)) == before:
            return
        self.partitions += after - before
        if self.partitions > self._max_partitions:
            self._remove(session.id)
            raise BrokerError(
                ErrorCode.fetch_session_id_not_found,
                f"fetch session {session.id} is closed: all sessions together may name {self._max_partitions} "
                f"partitions, and this one has {after} now",
            )

    def _remove(self, session_id: int) -> None:
        self.partitions -= len(self._sessions.pop(session_id))

    def _open(self, wanted: Wanted, by_id: bool, now_ms: int) -> Session | None:
        if not wanted or self._slots <= 0:
            return None
        size = len(wanted)
        if size > self._max_partitions:
            return None
        while len(self._sessions) >= self._slots or self.partitions + size > self._max_partitions:
            given_up = self._least_valuable(size, now_ms)
            if given_up is None:
                return None
            self._remove(given_up)
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, by_id, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        self.partitions += size
        return session

    def _least_valuable(self, size: int, now_ms: int) -> int | None:
        """The session that makes room for one of `size` partitions; None when each is worth more."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > _KEEP_MS:
            return oldest.id
        old = (
            (len(session), session.id) for session in self._sessions.values() if now_ms - session.created_ms > _KEEP_MS
        )
        smallest, session_id = min(old, default=(size, 0))
        return session_id if smallest < size else None
