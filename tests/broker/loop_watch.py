"""Detection of fsyncs and of waits for flush locks in the thread of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalog_broker.storage.partition import local_log


class WatchedLock:
    """An RLock that records the threads which wait for it."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._lock = threading.RLock()
        self._told = told

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            self._told("a flush lock")
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def loop_watched() -> Iterator[list[str]]:
    """What happened in a thread while an event loop was running in it: fsyncs, and locks that a flush may hold."""
    found: list[str] = []

    def told(what: str) -> None:
        if asyncio._get_running_loop() is not None:
            found.append(f"{what}:\n{''.join(traceback.format_stack(limit=14)[:-2])}")

    def watched(name: str) -> Callable[[int], None]:
        sync: Callable[[int], None] = getattr(os, name)

        def call(fd: int) -> None:
            told(name)
            sync(fd)

        return call

    class Threading:
        def __getattr__(self, name: str) -> Any:
            return getattr(threading, name)

        @staticmethod
        def RLock() -> WatchedLock:
            return WatchedLock(told)

    with pytest.MonkeyPatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            patched.setattr(os, name, watched(name))
        patched.setattr(local_log, "threading", Threading())
        yield found
