"""After a stall of the event loop, received bytes are handled before sessions expire."""

from __future__ import annotations

import asyncio

import pytest

from kafkalog_broker.net import late_timer
from kafkalog_broker.net.late_timer import GRACE_S, LATE_AFTER_S, LateTimer


class Loop:
    """A loop whose time is moved by hand; timers run before sockets are read, as in an event loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, asyncio.TimerHandle]] = []
        self._real = asyncio.new_event_loop()
        self._real.close()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: object) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, call, (), self._real)  # type: ignore[arg-type]
        self.timers.append((when, handle))
        return handle

    def run_until(self, now: float) -> None:
        """One round at `now`: a stall until then, if timers were due before."""
        self.now = now
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, handle in due:
            if not handle.cancelled():
                handle._run()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_timer_on_time_calls_back(loop: Loop) -> None:
    called: list[float] = []
    LateTimer(loop, 10, lambda: called.append(loop.now))  # type: ignore[arg-type]
    loop.run_until(9.9)
    assert not called
    loop.run_until(10 + LATE_AFTER_S / 2)
    assert called == [10 + LATE_AFTER_S / 2]


def test_heartbeat_received_during_a_stall_keeps_the_member(loop: Loop) -> None:
    called: list[float] = []
    session = LateTimer(loop, 10, lambda: called.append(loop.now))  # type: ignore[arg-type]
    loop.run_until(22)  # the loop was held for 12 s
    assert not called
    session.cancel()  # the heartbeat is read and handled
    loop.run_until(23)
    assert not called


def test_member_without_a_heartbeat_expires_after_the_grace_period(loop: Loop) -> None:
    called: list[float] = []
    LateTimer(loop, 10, lambda: called.append(loop.now))  # type: ignore[arg-type]
    loop.run_until(22)
    loop.run_until(22 + GRACE_S)
    assert called == [22 + GRACE_S]


def test_sleep_ends() -> None:
    asyncio.run(late_timer.sleep(0))
