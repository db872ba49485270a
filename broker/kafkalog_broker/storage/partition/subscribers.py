"""Whoever waits for a log to move: long polls, above all."""

from __future__ import annotations

from collections.abc import Callable


class Subscribers:
    """Callbacks of one log. All calls come from the thread that the log belongs to."""

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()

    def add(self, callback: Callable[[], None]) -> None:
        self._callbacks.add(callback)

    def discard(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)

    def wake(self) -> None:
        if self._callbacks:
            for callback in tuple(self._callbacks):  # a callback may unsubscribe itself
                callback()

    def clear(self) -> None:
        self._callbacks.clear()

    def __bool__(self) -> bool:
        return bool(self._callbacks)
