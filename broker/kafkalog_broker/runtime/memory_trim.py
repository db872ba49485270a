"""Returns free memory of the C library to the operating system once the work that used it has stopped."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

TRIM_AFTER_S = 1.0  # time without memory-hungry work after which free memory is returned


class IdleTrim:
    """Timer that runs `trim` in a thread TRIM_AFTER_S after the last call of `soon`.

    Belongs to one event loop and is called from its thread.
    """

    def __init__(self, run: Callable[[Callable[[], object]], object], trim: Callable[[], object] | None = None) -> None:
        """
        Args:
            run: Runs a function in a thread.
            trim: Function to run; `trim_memory` by default.
        """
        self._run = run
        self._trim = trim or trim_memory
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # in the loop's time

    def soon(self) -> None:
        """Restart the delay. Call it when work that uses much memory has ended."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + TRIM_AFTER_S
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._trim_if_due)

    def cancel(self) -> None:
        """Stop the timer, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _trim_if_due(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._trim_if_due)
        else:
            self._timer = None
            self._run(self._trim)


def trim_memory() -> None:
    """Return free memory to the operating system, on glibc only.

    glibc keeps free memory below the highest block in use. The call holds no Python lock, so run it in a thread.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    trim(0)
