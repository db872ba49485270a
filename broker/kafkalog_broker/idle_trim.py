"""Free memory goes back to the operating system when nobody is about to use it again."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

TRIM_AFTER_S = 1.0
"""Seconds without work that takes much memory after which what it used is given back: not between two pieces of work
that follow each other."""


class IdleTrim:
    """Calls `run(trim)`, which runs it in a thread, when `soon` was not called for TRIM_AFTER_S. For one event loop, in
    its thread."""

    def __init__(self, run: Callable[[Callable[[], object]], object], trim: Callable[[], object] | None = None) -> None:
        self._run = run
        self._trim = trim or trim_memory
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # in the loop's time

    def soon(self) -> None:
        """Work that took much memory has ended."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + TRIM_AFTER_S
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        """Nothing more is given back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._look)
        else:
            self._timer = None
            self._run(self._trim)


def trim_memory() -> None:
    """Give free memory of the C library back to the operating system, where it can (glibc): it keeps what lies below
    the last piece in use. Waits for no Python code, so it is for a thread."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    trim(0)
