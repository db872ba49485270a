"""A clock that a test moves on, and timers that follow it."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog_broker.clock import Clock, SystemClock
from kafkalog_broker.groups.timers import Scheduler, TimerHandle


class MovedClock:
    """`real`, and what a test has added to it. Time passes by itself too."""

    def __init__(self, real: Clock | None = None) -> None:
        self._real = real or SystemClock()
        self._added_ms = 0

    def now_ms(self) -> int:
        return self._real.now_ms() + self._added_ms

    def monotonic_ms(self) -> int:
        return self._real.monotonic_ms() + self._added_ms

    def advance(self, ms: int) -> None:
        self._added_ms += ms


class MovedTimers:
    """A Scheduler: timers of `schedule`, which is one itself, that come due as the clock is moved."""

    def __init__(self, clock: Clock, schedule: Scheduler) -> None:
        self._clock, self._schedule = clock, schedule
        self._armed: dict[_MovedTimer, None] = {}

    def __call__(self, delay_ms: int, call: Callable[[], None]) -> TimerHandle:
        timer = _MovedTimer(self._armed, self._clock.monotonic_ms() + delay_ms, call)
        timer.arm(self._schedule, delay_ms)
        return timer

    def moved(self) -> None:
        """The clock was moved: run what is due by now, the earliest first, and hurry the others."""
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._armed, key=lambda timer: timer.due_ms):
            if timer not in self._armed:
                continue  # one that ran before has cancelled it
            if timer.due_ms <= now_ms:
                timer.run()
            else:
                timer.arm(self._schedule, timer.due_ms - now_ms)


class _MovedTimer:
    def __init__(self, armed: dict[_MovedTimer, None], due_ms: int, call: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._armed, self._call = armed, call
        self._handle: TimerHandle | None = None

    def arm(self, schedule: Scheduler, delay_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed[self] = None
        self._handle = schedule(delay_ms, self.run)

    def run(self) -> None:
        self.cancel()
        self._call()

    def cancel(self) -> None:
        self._armed.pop(self, None)
        if self._handle is not None:
            self._handle.cancel()
