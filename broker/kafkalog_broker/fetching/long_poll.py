"""Long polls of Fetch: waiting requests, woken by appends without reading anything (Kafka's DelayedFetch).

A log that moves takes the bytes appended to it off what each poll of it needs, all in one short loop; only a poll that
needs nothing more is woken, and reads. So 2,000 polls that wait for much cost an append 0.1 ms, and a poll of many
partitions costs nothing for those that did not move. Bytes above a partition's limit, or above the last stable offset
until it moves, are not waited for. All else that happens to a log (its start moves, it goes away or offline) wakes all
its polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter

from kafkalog_broker.fetching.fetch_read import FetchedPartition
from kafkalog_broker.storage.partition.log import Log

_CHEAP_S = 0.0002  # a look at a log's polls that takes no longer happens with every append, without a timer
_REST = 9  # after a longer one the next comes after nine times as long: polls take a tenth of the loop's time at most


AWAKE_AT_ONCE = 8  # woken requests that read without waiting for a turn: 0.5 ms


class LongPoll:
    """Fetch request that waits. `woken` is done when it should read again; then it needs another LongPoll."""

    __slots__ = ("_polls", "missing", "woken")

    def __init__(self, polls: LongPolls, missing: int) -> None:
        self._polls = polls
        self.missing = missing  # bytes that have to come until reading is worth it
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)
            self._polls.awake += 1


class LongPolls:
    """All requests of a broker that wait."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._waiting: dict[Log, _PollsOfLog] = {}
        self.clock = clock
        self.awake = 0
        """Requests that were woken and have not read yet: all of them run in one round of the loop, unless they wait
        for their turn."""

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, poll: LongPoll, found: FetchedPartition) -> None:
        assert found.log is not None
        polls = self._waiting.get(found.log)
        if polls is None:
            polls = self._waiting[found.log] = _PollsOfLog(found.log, self)
        polls.add(poll, found)

    def forget(self, poll: LongPoll, logs: Iterable[Log]) -> None:
        if poll.woken.done():
            self.awake -= 1
        for log in logs:
            polls = self._waiting.get(log)
            if polls is not None and polls.remove(poll):
                del self._waiting[log]


class _PollsOfLog:
    __slots__ = (
        "_any", "_asleep", "_counted", "_counting", "_loop", "_next_look", "_polls", "_stable", "_state", "log",
    )  # fmt: skip

    def __init__(self, log: Log, polls: LongPolls) -> None:
        self.log = log
        self._polls = polls
        self._loop = asyncio.get_running_loop()
        self._counting: set[LongPoll] = set()
        self._stable: dict[LongPoll, int] = {}
        """Those that were given all below the last stable offset, and that offset."""
        self._any: set[LongPoll] = set()  # those that appends bring nothing
        self._counted = log.appended_bytes
        self._state = _state(log)
        self._next_look = 0.0
        self._asleep: asyncio.TimerHandle | None = None
        log.subscribe(self._moved)

    def add(self, poll: LongPoll, found: FetchedPartition) -> None:
        answer = found.answer
        if found.is_full:
            self._any.add(poll)
        elif found.committed and answer.last_stable_offset < answer.high_watermark:
            self._stable[poll] = answer.last_stable_offset
            if self.log.last_stable_offset != answer.last_stable_offset:  # others had their turn since it was read
                poll.wake()
        else:
            # What came before the poll read, and is not counted yet, is taken off by the next look.
            poll.missing += found.appended_bytes - self._counted
            self._counting.add(poll)
            if self.log.appended_bytes - self._counted >= poll.missing:
                poll.wake()
        if answer.log_start_offset != self.log.log_start_offset or self.log.is_closed or self.log.failure:
            poll.wake()

    def remove(self, poll: LongPoll) -> bool:
        """Remove a poll; True when it was the last."""
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
            wait = self._next_look - self._polls.clock() if self._next_look else 0.0
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
        self._next_look = now + _REST * (now - begin) if now - begin > _CHEAP_S else 0.0


def _state(log: Log) -> tuple[int, bool, bool]:
    return log.log_start_offset, log.failure is None, log.is_closed
