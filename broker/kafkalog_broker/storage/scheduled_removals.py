"""Renamed files and directories that are deleted after file.delete.delay.ms."""

from __future__ import annotations

import heapq
import logging
from pathlib import Path

from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.partition_removal import remove
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.names import DELETED_SUFFIX

_log = logging.getLogger(__name__)

_SYNC_RETRY_MS = 60_000  # delay after which a failed directory fsync is tried again


class ScheduledRemovals:
    """Files and directories by the time at which they are to be deleted, on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, Path]] = []  # due time in ms, path

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, path: Path, delay_ms: int) -> None:
        """Delete a renamed file or directory after `delay_ms`."""
        heapq.heappush(self._heap, (self._clock.monotonic_ms() + delay_ms, path))

    def remove_due(self, now_ms: int) -> None:
        """Delete files and directories that are due. Blocks. A failure is logged; the next start tries again.

        Renames must be on disk before the first file of a directory is deleted, so the directory is fsynced. If that
        fails, the deletion is postponed. Loading concludes from a `.deleted` file that older segments were to be
        deleted too, even if a power failure has undone their renames.
        """
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[1])
        unsynced = set()
        for directory in {path.parent for path in due if path.name.endswith(DELETED_SUFFIX)}:
            try:
                fsync_directory(directory)
            except FileNotFoundError:
                pass  # the partition's directory was removed
            except OSError as error:
                _log.warning("%s could not be synced; its deleted files are removed later: %s", directory, error)
                unsynced.add(directory)
        for path in due:
            if path.parent in unsynced:
                heapq.heappush(self._heap, (now_ms + _SYNC_RETRY_MS, path))
            else:
                remove(path)
