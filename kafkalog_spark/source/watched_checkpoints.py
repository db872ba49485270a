"""Checkpoints of log directories that a stream reads again when they have changed."""

from __future__ import annotations

import os

from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.source.watch import Watch
from kafkalog_spark.store.interface import Store


class WatchedCheckpoints(Checkpoints):
    """Checkpoints that are read again after `look` if their files have changed; in an object store in any case."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[tuple[str, str], Watch] = {}

    def look(self, store: Store, directory: str, now: int) -> None:
        """Forget those checkpoints of a log directory that may have changed since the last look.

        Args:
            store: Store of the directory.
            directory: The log directory.
            now: Nanoseconds of a monotonic clock.
        """
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            watch = self._watches.setdefault((directory, name), Watch(os.path.join(directory, name)))
            try:
                if store.is_remote or watch.changed(now):
                    self._read.pop((directory, name), None)
            except OSError:
                watch.forget()
                self._read[directory, name] = {}
