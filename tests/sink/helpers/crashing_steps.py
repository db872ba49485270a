"""A file system that ends the process, or fails, at the n-th change that a commit makes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

KILLED = 77  # exit code


class CountingSteps:
    """Records each step as (operation, file name)."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def __call__(self, what: str, path: Path) -> None:
        self.steps.append((what, path.name))


class KillingSteps(CountingSteps):
    """Ends the process before step `at` (from 0), as kill -9 would: no handler runs, locks go."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def __call__(self, what: str, path: Path) -> None:
        if len(self.steps) == self.at:
            os._exit(KILLED)
        super().__call__(what, path)


class FailingSteps(CountingSteps):
    """Fails with `error` at step `at`, and at every later one while `stays`."""

    def __init__(self, at: int, error: int = errno.ENOSPC, *, stays: bool = False) -> None:
        super().__init__()
        self.at, self.error, self.stays = at, error, stays

    def __call__(self, what: str, path: Path) -> None:
        super().__call__(what, path)
        now = len(self.steps) - 1
        if now == self.at or (self.stays and now > self.at and what != "unlink"):
            raise OSError(self.error, os.strerror(self.error), str(path))


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process and return its exit code; 0 if `work` returned."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
