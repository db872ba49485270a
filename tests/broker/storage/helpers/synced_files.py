"""Records fsyncs of files and directories, and renames, in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def recorded_syncs(*, renames: bool = False) -> Iterator[list[str]]:
    """Record the names of fsynced files and directories; with `renames` also "old -> new" of each rename."""
    steps: list[str] = []

    def syncing(name: str) -> Any:
        real = getattr(os, name)

        def call(fd: int) -> None:
            real(fd)
            steps.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)

        return call

    def renaming(name: str) -> Any:
        real = getattr(os, name)

        def call(old: Any, new: Any) -> None:
            real(old, new)
            steps.append(f"{Path(old).name} -> {Path(new).name}")

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            patched.setattr(os, name, syncing(name))
        for name in ("rename", "replace") if renames else ():
            patched.setattr(os, name, renaming(name))
        yield steps
