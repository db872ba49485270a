"""Log directory of the broker: its lock, ID, checkpoints and availability.

A directory that fails (read-only, I/O errors, unplugged) goes offline with its partitions; the others are still served.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.offset_checkpoint import OffsetCheckpoint
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.write.log_dir_lock import LogDirLock

_log = logging.getLogger(__name__)


class LogDirectory:
    """Entry of log.dirs.

    Attributes:
        id: directory.id of meta.properties.
        lock: Lock of the directory; None before it is acquired and after `close`.
        failure: Why the directory is offline; None while it is online.
        on_failure: Called once with the error, on the thread that got it.
        was_clean: True if the directory had a clean-shutdown marker.
        is_listed: True once its partitions are known.
        is_loaded: True once those of its logs that needed recovery were recovered.
        partitions: Number of partitions in it.
        truncations: Number of calls of `lower_checkpoints`.
        writing: Held while its checkpoints are written.
    """

    def __init__(self, path: Path, id: str = "") -> None:
        self.path = path
        self.id = id
        self.lock: LogDirLock | None = None
        self.failure: str | None = None
        self.on_failure: Callable[[BaseException], None] | None = None
        self.recovery_points = OffsetCheckpoint(path / checkpoint.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = OffsetCheckpoint(path / checkpoint.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = OffsetCheckpoint(path / checkpoint.HIGH_WATERMARK_CHECKPOINT)
        self.cleaner_offsets = OffsetCheckpoint(path / checkpoint.CLEANER_OFFSET_CHECKPOINT)
        self.was_clean = self.is_listed = self.is_loaded = False
        self.partitions = self.truncations = 0
        self.writing = threading.Lock()

    @property
    def is_online(self) -> bool:
        return self.failure is None

    @property
    def checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaner_offsets

    def fail(self, error: BaseException) -> None:
        """Take the directory offline and log the error. No-op if it is offline already."""
        if self.failure is not None:
            return
        self.failure = str(error)
        _log.error("log directory %s and its partitions are offline: %s", self.path, self.failure)
        if self.on_failure is not None:
            self.on_failure(error)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Take the directory offline if the block raises OSError, and suppress the error.

        An error that does not concern the files, such as a lack of descriptors, is raised instead.
        """
        try:
            yield
        except OSError as error:
            if file_fault(error) is FileFault.NONE:
                raise
            self.fail(error)

    def reset_checkpoints(self, keys: Collection[TopicPartition]) -> bool:
        """Checkpoint recovery point 0 for new partitions, and remove their other offsets. The files are synced.

        New partitions must not inherit the offsets of a deleted partition of the same name: with a log start offset
        above its end, a log would lose all its records. The recovery point 0 means that the log has no gaps
        (`LogEntry.contiguous_from`). Blocks; any thread.

        Returns:
            True if a checkpoint was written. The names of all files in the directory are then on disk, too.

        Raises:
            OSError: If a checkpoint cannot be written.
        """
        is_written = False
        for file in self.checkpoints:
            with self.writing:
                offsets = {key: offset for key, offset in file.known.items() if key not in keys}
                if file is self.recovery_points:
                    offsets |= dict.fromkeys(keys, 0)
                if offsets != file.known:
                    file.write(offsets)
                    is_written = True
        return is_written

    def raise_recovery_point(self, key: TopicPartition, offset: int) -> None:
        """Checkpoint that a log is on disk below `offset`, and sync the checkpoint.

        Blocks. May be called in any thread. Raises OSError.
        """
        with self.writing:
            known = self.recovery_points.known
            if known.get(key, -1) < offset:
                self.recovery_points.write({**known, key: offset})

    def lower_checkpoints(self, key: TopicPartition, offset: int) -> None:
        """Lower the checkpointed offsets of a log before it is truncated to `offset`.

        Records that are written above `offset` afterwards are neither flushed nor clean, and are not below the log
        start. Blocks; any thread. Raises OSError.
        """
        with self.writing:
            self.truncations += 1
            for file in self.checkpoints:
                if file.known.get(key, -1) > offset:
                    file.write({**file.known, key: offset})

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None
