"""Waiting Fetch requests, woken by appends without reading the log (Kafka: DelayedFetch and its purgatory).

When a log changes, one short loop subtracts the appended bytes from the missing bytes of each waiting request. Only a
request without missing bytes is woken and reads. So an append stays cheap while thousands of requests wait for many
bytes, and partitions that do not change cost a waiting request nothing. Bytes above a partition's limit, or
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
"""Number of woken requests that read without waiting for a time slice."""
_SHORT_PASS_S = 0.0002
"""If a pass over the requests of one log takes no longer than this, the next append may start another one at once."""
_PAUSE_FACTOR = 9
"""After a longer pass, the requests of the log are not checked for this multiple of its duration. So passes over them
take at most a tenth of the loop's time."""


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
    """State of a log. Every change of it wakes all requests."""

    log_start_offset: int
    is_online: bool
    is_closed: bool


class _PollsOfLog:
    """Requests that wait for one log."""

    __slots__ = (
        "_counted_bytes", "_delayed_check", "_loop", "_next_check_s", "_polls", "_state", "_waiting_for_bytes",
        "_waiting_for_lso", "_waiting_for_other_events", "log",
    )  # fmt: skip

    def __init__(self, log: Log, polls: LongPolls) -> None:
        self.log = log
        self._polls = polls
        self._loop = asyncio.get_running_loop()
        self._waiting_for_bytes: set[LongPoll] = set()  # woken by appended bytes
        self._waiting_for_lso: dict[LongPoll, int] = {}  # woken when the last stable offset is no longer this one
        self._waiting_for_other_events: set[LongPoll] = set()  # appends add nothing to their responses
        self._counted_bytes = log.appended_bytes  # appended bytes of the log that are already subtracted
        self._state = _state(log)
        self._next_check_s: float | None = None  # no check before this time of `LongPolls.clock`; None: no limit
        self._delayed_check: asyncio.TimerHandle | None = None
        log.subscribe(self._on_log_change)

    def add(self, poll: LongPoll, fetched: FetchedPartition) -> None:
        log = self.log
        if fetched.is_cut_off:
            self._waiting_for_other_events.add(poll)
        elif fetched.waits_for_lso:
            self._waiting_for_lso[poll] = fetched.last_stable_offset
            if log.last_stable_offset != fetched.last_stable_offset:  # other requests ran since it was read
                poll.wake()
        else:
            # The next check will also subtract bytes that were appended before the read and are not counted yet.
            poll.missing += fetched.appended_bytes - self._counted_bytes
            self._waiting_for_bytes.add(poll)
            if log.appended_bytes - self._counted_bytes >= poll.missing:
                poll.wake()
        if fetched.log_start_offset != log.log_start_offset or log.is_closed or log.failure:
            poll.wake()

    def remove(self, poll: LongPoll) -> bool:
        """Remove a poll. Return True if no other poll is left."""
        self._waiting_for_bytes.discard(poll)
        self._waiting_for_other_events.discard(poll)
        self._waiting_for_lso.pop(poll, None)
        if self._waiting_for_bytes or self._waiting_for_other_events or self._waiting_for_lso:
            return False
        self.log.unsubscribe(self._on_log_change)
        if self._delayed_check is not None:
            self._delayed_check.cancel()
        return True

    def _on_log_change(self) -> None:
        if self._delayed_check is None:
            wait = 0.0 if self._next_check_s is None else self._next_check_s - self._polls.clock()
            if wait <= 0:
                self._check()
            else:
                self._delayed_check = self._loop.call_later(wait, self._check)

    def _check(self) -> None:
        begin = self._polls.clock()
        self._delayed_check = None
        log = self.log
        state = _state(log)
        if state != self._state:
            self._state = state
            for poll in (*self._waiting_for_bytes, *self._waiting_for_other_events, *self._waiting_for_lso):
                poll.wake()
        new = log.appended_bytes - self._counted_bytes
        self._counted_bytes += new
        for poll in self._waiting_for_bytes:
            poll.missing -= new
            if poll.missing <= 0:
                poll.wake()
        if self._waiting_for_lso:
            stable = log.last_stable_offset
            for poll, before in self._waiting_for_lso.items():
                if stable != before:
                    poll.wake()
        now = self._polls.clock()
        self._next_check_s = now + _PAUSE_FACTOR * (now - begin) if now - begin > _SHORT_PASS_S else None


def _state(log: Log) -> _LogState:
    return _LogState(log.log_start_offset, log.failure is None, log.is_closed)
