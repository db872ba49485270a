"""Which files and names a crash of the machine cannot lose: those that were synced since they last changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Identity = tuple[int, int]


class SyncWatch:
    """Follows the fsyncs and changes that this process makes through `os` from its creation on.

    Files that were there before count as not synced. at_rename: called before a rename with its target.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: set[Identity] = set()
        self.at_rename: Callable[[Path], None] = lambda path: None
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._syncing(getattr(os, name)))
        for name in ("write", "pwrite", "ftruncate", "truncate"):
            monkeypatch.setattr(os, name, self._changing(getattr(os, name)))
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._renaming(getattr(os, name)))

    def _syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            real(fd)
            self._synced.add(_identity(fd))

        return sync

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(file: int | str | Path, *arguments: Any) -> Any:
            self._synced.discard(_identity(file))
            return real(file, *arguments)

        return change

    def _renaming(self, real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: str | Path, target: str | Path) -> None:
            self.at_rename(Path(target))
            real(source, target)
            self._synced.discard(_identity(Path(target).parent))

        return rename

    def is_synced(self, path: Path) -> bool:
        """Return True if the file's bytes, or the directory's names, are on disk."""
        return _identity(path) in self._synced

    def unsynced(self, directory: Path) -> list[str]:
        """Return the names of what a crash may lose in a directory, `.` for its names."""
        paths = [directory, *directory.rglob("*")]
        return sorted(str(path.relative_to(directory)) for path in paths if not self.is_synced(path))


def _identity(file: int | str | Path) -> Identity:
    stat = os.stat(file)
    return stat.st_dev, stat.st_ino
