"""How partitions and segments leave the disk: renamed at once, removed after file.delete.delay.ms.

A rename is quick and survives a crash: whatever carries the suffix is removed at the next start.
"""

from __future__ import annotations

import heapq
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from kafkalog_spark.log.format.durable import fsync_directory
from kafkalog_spark.log.format.names import DELETE_DIR_SUFFIX

_log = logging.getLogger(__name__)

_MAX_FILE_NAME = 255


def delete_dir_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """`topic-N.<32 hex digits>-delete`, the topic cut so that the name has at most 255 characters
    (UnifiedLog.logDeleteDirName)."""
    rest = f"-{partition}.{unique.hex}{DELETE_DIR_SUFFIX}"
    return topic[: _MAX_FILE_NAME - len(rest)] + rest


def rename_for_deletion(directory: Path, topic: str, partition: int, *, sync: bool = True) -> Path:
    """Rename a partition directory so that no broker loads it again; on disk on return with `sync`. Raises OSError."""
    renamed = directory.with_name(delete_dir_name(topic, partition, uuid.uuid4()))
    os.rename(directory, renamed)
    if sync:
        fsync_directory(directory.parent)
    return renamed


def remove(path: Path) -> None:
    """Remove a file, or a directory with what is in it; nothing there is fine. Raises OSError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass


class DelayedDeletions:
    """Renamed files and directories that wait for their removal.

    on_error(path, error): called with what could not be removed; it is not tried again before the next start.
    """

    def __init__(self, on_error: Callable[[Path, OSError], None] | None = None) -> None:
        self._waiting: list[tuple[int, int, Path]] = []
        self._counter = 0  # of equal times, first come, first served; paths are never compared
        self._on_error = on_error or _say

    def __len__(self) -> int:
        return len(self._waiting)

    def schedule(self, path: Path, due_ms: int) -> None:
        """Remove `path` at the first `run` at or after `due_ms`, in the clock of the caller."""
        heapq.heappush(self._waiting, (due_ms, self._counter, path))
        self._counter += 1

    def run(self, now_ms: int) -> int:
        """Remove what is due; returns how many. Blocks as long as the file system takes."""
        removed = 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            path = heapq.heappop(self._waiting)[2]
            try:
                remove(path)
                removed += 1
            except OSError as error:
                self._on_error(path, error)
        return removed


def _say(path: Path, error: OSError) -> None:
    _log.warning("%s could not be removed: %s", path, error)
