"""Timers with names: a new one of the same name takes the place of the old one (Kafka's CoordinatorTimer)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Runs a call later. For an event loop: `lambda ms, call: loop.call_later(ms / 1000, call)`."""

    def __call__(self, delay_ms: int, call: Callable[[], None], /) -> TimerHandle: ...


class Timers:
    """The timers of one partition of __consumer_offsets."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._handles: dict[Hashable, TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: int, call: Callable[[], None]) -> None:
        """Run `call` in `delay_ms`, instead of what was scheduled under `key` before."""
        self.cancel(key)

        def fire() -> None:
            self._handles.pop(key, None)
            call()

        self._handles[key] = self._scheduler(delay_ms, fire)

    def cancel(self, key: Hashable) -> None:
        """Forget `key`; nothing happens when it is not scheduled."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        for key in list(self._handles):
            self.cancel(key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles

    def __len__(self) -> int:
        return len(self._handles)
