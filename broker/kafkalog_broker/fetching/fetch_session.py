"""Fetch sessions (KIP-227): the broker stores the partitions of a consumer; requests and responses contain changes.

A request has a session ID and an epoch:

    ID 0, epoch -1   no session: request and response contain all partitions
    ID 0, epoch 0    open a session: as above, and the response has its ID (0 if the cache is full)
    ID n, epoch -1   close session n, and respond without a session
    ID n, epoch 0    close session n, open another
    ID n, epoch e    next request of session n: e must be the expected epoch, which then grows (after 2**31-1 comes 1)
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import FetchedPartition
from kafkalog_broker.fetching.fetch_request import (
    FetchPartition,
    FetchRequest,
    MissingPartitions,
    PartitionKey,
    TopicKey,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_PARTITIONS = 100_000
"""Limit on the partitions of all sessions together. Kafka limits only the number of sessions, each of which may have a
million partitions. A consumer without a session sends its partitions in every request."""
_MAX_EPOCH = 2**31 - 1
_new_tuple = tuple.__new__  # _Reported without the cost of its constructor
_EVICTION_MS = 120_000
"""Time for which a session is safe from eviction (Kafka: MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class _Reported(NamedTuple):
    """State of a partition in the last response that included it."""

    high_watermark: int
    log_start_offset: int
    had_error: bool


_NEVER_REPORTED = _Reported(-1, -1, False)


class Session:
    """The partitions of one consumer, in the order in which its next request reads them.

    Attributes:
        id: Session ID, above 0.
        names_topics_by_id: True if the keys of its partitions have topic IDs instead of names.
        epoch: Epoch that the next request must have.
        created_ms: Time of the request that opened it.
        last_used_ms: Time of the last request.
    """

    def __init__(self, session_id: int, names_topics_by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.names_topics_by_id = names_topics_by_id
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self._partitions: dict[PartitionKey, FetchPartition] = {}
        self._reported: dict[PartitionKey, _Reported] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, requested: Mapping[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        self._partitions.update(requested)
        for key in forgotten:
            self._partitions.pop(key, None)
            self._reported.pop(key, None)

    def partitions(self) -> list[FetchPartition]:
        return list(self._partitions.values())

    def must_report(self, fetched: FetchedPartition) -> bool:
        """Return True if an incremental response includes this partition, and store its state.

        A partition with records moves behind all others, so that none starves when responses are full.
        """
        key = (fetched.request.topic, fetched.request.partition)
        partition = self._partitions.get(key)
        if partition is None:
            return True
        has_error = bool(fetched.error_code) or fetched.diverging_epoch is not None
        before = self._reported.get(key, _NEVER_REPORTED)
        self._reported[key] = _new_tuple(_Reported, (fetched.high_watermark, fetched.log_start_offset, has_error))
        if fetched.size:
            del self._partitions[key]
            self._partitions[key] = partition
            return True
        return has_error or before != (fetched.high_watermark, fetched.log_start_offset, False)


class FetchContext(NamedTuple):
    """Partitions that one request reads, and the session that decides what its response includes (Kafka: FetchContext).

    Attributes:
        partitions: Partitions to read, each once, in order.
        session: Session of the request, None without one.
        is_incremental: True if the response includes changed partitions only.
        missing: Partitions that cannot be read, by topic.
    """

    partitions: Sequence[FetchPartition]
    session: Session | None = None
    is_incremental: bool = False
    missing: Mapping[TopicKey, MissingPartitions] = MappingProxyType({})

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def report(self, fetched: Sequence[FetchedPartition]) -> Sequence[FetchedPartition]:
        """Return the partitions that the response includes, and store their state in the session.

        Call it once, and only if the response is sent (Kafka: updateAndGenerateResponseData).
        """
        if self.session is None:
            return fetched
        must_report = self.session.must_report
        changed = [partition for partition in fetched if must_report(partition)]
        return changed if self.is_incremental else fetched


class FetchSessions:
    """Cache of fetch sessions (Kafka: FetchSessionCache).

    A full cache evicts the least recently used session if it was idle for more than two minutes. Otherwise it evicts
    the smallest session that was opened more than two minutes ago, if the new one is larger. If neither is possible,
    the request gets no session.

    Args:
        slots: Most sessions (max.incremental.fetch.session.cache.slots).
        new_id: Returns candidates for session IDs, random ones by default.
        max_partitions: Most partitions of all sessions together.
    """

    def __init__(
        self, slots: int, new_id: Callable[[], int] | None = None, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self._slots = slots
        self._new_id = new_id or (lambda: random.randint(1, _MAX_EPOCH))
        self._max_partitions = max_partitions
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def new_context(self, request: FetchRequest, now_ms: int) -> FetchContext:
        """Find, open or close the session of a request. A session without partitions is closed.

        Raises:
            BrokerError: fetch_session_id_not_found, also for a session that has grown too large: it is closed, and the
                client opens a new one; invalid_fetch_session_epoch; fetch_session_topic_id_error.
        """
        requested = request.partitions
        if request.session is None:
            return FetchContext(list(requested.values()), missing=request.missing)
        session_id, epoch, forgotten, names_topics_by_id = request.session
        if epoch == FINAL_EPOCH:
            self.close(session_id)
            return FetchContext(list(requested.values()), missing=request.missing)
        if epoch == INITIAL_EPOCH:
            self.close(session_id)
            return FetchContext(list(requested.values()), self._open(requested, names_topics_by_id, now_ms))
        session = self._sessions.get(session_id)
        if session is None:
            raise BrokerError(ErrorCode.fetch_session_id_not_found, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise BrokerError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} expects epoch {session.epoch}, the request has {epoch}",
            )
        if session.names_topics_by_id != names_topics_by_id:
            raise BrokerError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} was opened with topic {'ids' if session.names_topics_by_id else 'names'}",
            )
        if requested or forgotten:
            self._update(session, requested, forgotten)
        if not session:
            self._remove(session_id)
            return FetchContext(())
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext(session.partitions(), session, is_incremental=True)

    def close(self, session_id: int) -> None:
        """Close a session. A no-op if there is none."""
        if session_id in self._sessions:
            self._remove(session_id)

    def _update(
        self, session: Session, requested: Mapping[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> None:
        before = len(session)
        session.update(requested, forgotten)
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

    def _open(
        self, requested: Mapping[PartitionKey, FetchPartition], names_topics_by_id: bool, now_ms: int
    ) -> Session | None:
        size = len(requested)
        if not size or self._slots <= 0 or size > self._max_partitions:
            return None
        while len(self._sessions) >= self._slots or self.partitions + size > self._max_partitions:
            evicted = self._evictable(size, now_ms)
            if evicted is None:
                return None
            self._remove(evicted)
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, names_topics_by_id, now_ms)
        session.update(requested, ())
        self._sessions[session_id] = session
        self.partitions += size
        return session

    def _evictable(self, size: int, now_ms: int) -> int | None:
        """Return the ID of the session that a new one of `size` partitions may evict (FetchSessionCache.tryEvict)."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > _EVICTION_MS:
            return oldest.id
        candidates = (
            (len(session), session.id)
            for session in self._sessions.values()
            if now_ms - session.created_ms > _EVICTION_MS
        )
        smallest, session_id = min(candidates, default=(size, 0))
        return session_id if smallest < size else None
