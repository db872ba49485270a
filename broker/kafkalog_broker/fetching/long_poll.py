"""Waiting Fetch requests, woken by appends without reading the log (Kafka: DelayedFetch and its purgatory).

When a log changes, one short loop subtracts the appended bytes from the missing bytes of each waiting request. Only a
request without missing bytes is woken and reads. So an append stays cheap while thousands of requests wait for many
bytes, and a request for many partitions costs nothing when other partitions change. Bytes above a partition's limit, or
above the last stable offset until it advances, do not count. Every other event of a log (its start offset changes, it
is closed or goes offline) wakes all requests that wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import NamedTuple

from kafkalog_broker.fetching.fetch_read import FetchedPartition
from kafkalog_broker.storage.partition.log import Log

AWAKE_AT_ONCE = 8
"""Woken requests that read without waiting for a turn: 0.5 ms."""
_CHEAP_S = 0.0002
"""A pass over the requests of one log that takes no longer is made at every append, without a timer."""
_REST = 9
"""After a longer pass the next one comes after nine times as long: passes take at most a tenth of the loop's time."""


class LongPoll:
    """One wait of a Fetch request. It is used once: a request that has to wait again makes another one.

    Attributes:
        missing: Bytes that must be appended until reading is worth it.
        woken: Done when the request should read again.
    """

    __slots__ = ("_polls", "missing", "woken")

    def __init__(self, polls: LongPolls, missing: int) -> None:
        self._polls = polls
        self.missing = missing
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)
            self._polls.awake += 1


class LongPolls:
    """All waiting Fetch requests of a broker. Not thread-safe; call from the event loop.

    Attributes:
        clock: Time in seconds.
        awake: Requests that were woken and have not read yet. All of them would run in one round of the event loop, so
            those above AWAKE_AT_ONCE queue for a time slice.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._waiting: dict[Log, _PollsOfLog] = {}
        self.clock = clock
        self.awake = 0

    def __len__(self) -> int:
        """Return the number of logs that requests wait for."""
        return len(self._waiting)

    def watch(self, poll: LongPoll, partitions: Iterable[FetchedPartition]) -> None:
        """Wake `poll` when enough has happened in the logs of `partitions` since these were read."""
        for fetched in partitions:
            log = fetched.log
            if log is not None:
                polls = self._waiting.get(log)
                if polls is None:
                    polls = self._waiting[log] = _PollsOfLog(log, self)
                polls.add(poll, fetched)

    def forget(self, poll: LongPoll, partitions: Iterable[FetchedPartition]) -> None:
        """Undo `watch`."""
        if poll.woken.done():
            self.awake -= 1
        for fetched in partitions:
            log = fetched.log
            if log is not None:
                polls = self._waiting.get(log)
                if polls is not None and polls.remove(poll):
                    del self._waiting[log]


class _LogState(NamedTuple):
    """The part of a log's state whose changes wake every request."""

    log_start_offset: int
    is_online: bool
    is_closed: bool


class _PollsOfLog:
    """Requests that wait for one log."""

    __slots__ = (
        "_any", "_asleep", "_counted", "_counting", "_loop", "_next_look", "_polls", "_stable", "_state", "log",
    )  # fmt: skip

    def __init__(self, log: Log, polls: LongPolls) -> None:
        self.log = log
        self._polls = polls
        self._loop = asyncio.get_running_loop()
        self._counting: set[LongPoll] = set()  # woken by appended bytes
        self._stable: dict[LongPoll, int] = {}  # woken when the last stable offset is no longer this one
        self._any: set[LongPoll] = set()  # appends add nothing that they may read
        self._counted = log.appended_bytes  # appended bytes that were subtracted already
        self._state = _state(log)
        self._next_look: float | None = None  # no earlier than this; None without a rest
        self._asleep: asyncio.TimerHandle | None = None
        log.subscribe(self._moved)

    def add(self, poll: LongPoll, fetched: FetchedPartition) -> None:
        log = self.log
        if fetched.is_cut_off:
            self._any.add(poll)
        elif fetched.waits_for_lso:
            self._stable[poll] = fetched.last_stable_offset
            if log.last_stable_offset != fetched.last_stable_offset:  # other requests ran since it was read
                poll.wake()
        else:
            # Bytes appended before the read, and not counted yet, are subtracted by the next look.
            poll.missing += fetched.appended_bytes - self._counted
            self._counting.add(poll)
            if log.appended_bytes - self._counted >= poll.missing:
                poll.wake()
        if fetched.log_start_offset != log.log_start_offset or log.is_closed or log.failure:
            poll.wake()

    def remove(self, poll: LongPoll) -> bool:
        """Remove a poll. Return True if no other is left."""
        self._counting.discard(poll)
        self._any.discard(poll)
        self._stable.pop(poll, None)
        if self._counting or self._any or self._stable:
            return False
        self.log.unsubscribe(self._moved)
        if self._asleep is not None:
            self._asleep.cancel()
        return True

    def _moved(self) -> None:
        if self._asleep is None:
            wait = 0.0 if self._next_look is None else self._next_look - self._polls.clock()
            if wait <= 0:
                self._look()
            else:
                self._asleep = self._loop.call_later(wait, self._look)

    def _look(self) -> None:
        begin = self._polls.clock()
        self._asleep = None
        log = self.log
        state = _state(log)
        if state != self._state:
            self._state = state
            for poll in (*self._counting, *self._any, *self._stable):
                poll.wake()
        new = log.appended_bytes - self._counted
        self._counted += new
        for poll in self._counting:
            poll.missing -= new
            if poll.missing <= 0:
                poll.wake()
        if self._stable:
            stable = log.last_stable_offset
            for poll, before in self._stable.items():
                if stable != before:
                    poll.wake()
        now = self._polls.clock()
        self._next_look = now + _REST * (now - begin) if now - begin > _CHEAP_S else None


def _state(log: Log) -> _LogState:
    return _LogState(log.log_start_offset, log.failure is None, log.is_closed)
