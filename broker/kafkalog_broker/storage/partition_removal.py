"""Removal of partition directories: they are renamed immediately, and deleted after file.delete.delay.ms.

A rename is quick. If the broker crashes before the deletion, the next start removes all directories with the suffix.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_entry import LogEntry, storage_error
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.names import DELETE_DIR_SUFFIX

_log = logging.getLogger(__name__)

_MAX_FILE_NAME = 255


def rename_for_deletion(directory: Path, topic: str, partition: int, *, sync: bool = True) -> Path:
    """Rename a partition directory so that no start loads it again (Kafka: `UnifiedLog.logDeleteDirName`).

    The new name is `topic-N.<32 hex digits>-delete`, with the topic shortened to fit 255 characters.

    Args:
        sync: Fsync the parent directory, so that the rename is durable when the function returns.

    Raises:
        OSError: If the directory cannot be renamed or synced.
    """
    rest = f"-{partition}.{uuid.uuid4().hex}{DELETE_DIR_SUFFIX}"
    renamed = directory.with_name(topic[: _MAX_FILE_NAME - len(rest)] + rest)
    os.rename(directory, renamed)
    if sync:
        fsync_directory(directory.parent)
    return renamed


def remove(path: Path) -> None:
    """Remove a file, or a directory with its contents. A missing path is ignored, and an error is logged."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("%s could not be removed: %s", path, error)


@dataclass(slots=True)
class PartitionRemoval:
    """Partitions that were taken out of service, but whose directories are not renamed yet.

    Attributes:
        entries: Entries that were removed from the log table, each with its file.delete.delay.ms.
        schedule_removal: Called with a renamed directory and the delay in ms before it may be removed.
        on_done: Called by `finish` when all directories are renamed, so that no start loads them.
        failed: Error of each topic with a directory that could not be renamed.
    """

    entries: Sequence[tuple[LogEntry, int]]
    schedule_removal: Callable[[Path, int], None]
    on_done: Callable[[], None] = field(default=lambda: None)
    failed: dict[str, BrokerError] = field(default_factory=dict)

    def finish(self) -> int:
        """Rename the directories, with one fsync per log directory, and return their number.

        Directories in an offline log directory are not renamed; a start at which it is online removes them. Blocks; any
        thread.

        Raises:
            BrokerError: kafka_storage_error if a directory could not be renamed.
        """
        renamed: list[tuple[LogDirectory, Path, int]] = []
        for entry, delay_ms in self.entries:
            if not entry.log_dir.is_online:
                continue
            try:
                path = rename_for_deletion(entry.path, entry.topic, entry.partition, sync=False)
                renamed.append((entry.log_dir, path, delay_ms))
            except OSError as error:
                if file_fault(error) is not FileFault.NONE:
                    entry.log_dir.fail(error)
                self._fail(entry, f"{entry.path} cannot be renamed: {error}")
        for log_dir in {id(log_dir): log_dir for log_dir, _, _ in renamed}.values():
            try:
                fsync_directory(log_dir.path)
            except OSError as error:
                if file_fault(error) is not FileFault.NONE:
                    log_dir.fail(error)
                for entry, _ in self.entries:
                    if entry.log_dir is log_dir:
                        self._fail(entry, f"{log_dir.path} cannot be synced: {error}")
        for _, path, delay_ms in renamed:
            self.schedule_removal(path, delay_ms)
        for failure in self.failed.values():
            raise failure
        self.on_done()
        return len(renamed)

    def _fail(self, entry: LogEntry, message: str) -> None:
        self.failed.setdefault(entry.topic, storage_error(*entry.key, message))


def combine_removals(removals: Sequence[PartitionRemoval], on_done: Callable[[], None]) -> PartitionRemoval:
    """Combine at least one removal into one, so that each log directory is fsynced once."""
    entries = [entry for removal in removals for entry in removal.entries]
    return PartitionRemoval(entries, removals[0].schedule_removal, on_done)
