"""A clock that a test can advance, and timers that follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkalog_broker.coordinator.coordinator_timer import Scheduler, TimerHandle
from kafkalog_broker.runtime.clock import Clock


class MovedClock:
    """A real clock plus the time by which the test has advanced it."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self._added_ms = 0

    def now_ms(self) -> int:
        return self._real.now_ms() + self._added_ms

    def monotonic_ms(self) -> int:
        return self._real.monotonic_ms() + self._added_ms

    def advance(self, ms: int) -> None:
        self._added_ms += ms


class MovedTimers:
    """A Scheduler whose timers become due when the clock is advanced. `schedule` starts the underlying timers."""

    def __init__(self, clock: Clock, schedule: Scheduler) -> None:
        self.clock = clock
        self.schedule = schedule
        self.armed: dict[_MovedTimer, TimerHandle] = {}

    def __call__(self, delay_ms: int, call: Callable[[], None]) -> TimerHandle:
        timer = _MovedTimer(self, self.clock.monotonic_ms() + delay_ms, call)
        self.armed[timer] = self.schedule(delay_ms, timer.run)
        return timer

    def moved(self) -> None:
        """Run the timers that are due after the clock was advanced, earliest first, and reschedule the others."""
        now_ms = self.clock.monotonic_ms()
        for timer in sorted(self.armed, key=lambda timer: timer.due_ms):
            if timer not in self.armed:
                continue  # a timer that ran before has cancelled it
            if timer.due_ms <= now_ms:
                timer.run()
            else:
                self.armed[timer].cancel()
                self.armed[timer] = self.schedule(timer.due_ms - now_ms, timer.run)


@dataclass(frozen=True, eq=False)
class _MovedTimer:
    timers: MovedTimers
    due_ms: int
    call: Callable[[], None]

    def run(self) -> None:
        self.cancel()
        self.call()

    def cancel(self) -> None:
        if self in self.timers.armed:
            self.timers.armed.pop(self).cancel()
