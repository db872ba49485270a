"""Creation of the directories and files of new partitions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_entry import Key
from kafkalog_broker.storage.partition.loaded_log import LoadedLog, create_log_files
from kafkalog_broker.storage.partition_removal import remove
from kafkalog_spark.format.fsync import DIRECTORY_MODE, fsync_directory

_CREATING_THREADS = 8
"""Threads that create partitions; more than processors, because each mostly waits for a disk."""


class NewPartitions:
    """Directories of new partitions with the files of their empty logs, on disk.

    Each partition takes three fsyncs. Several threads create them, because a file system commits concurrent fsyncs
    together.
    """

    def __init__(self, log_dirs: Mapping[Key, LogDirectory], topic_ids: Mapping[Key, uuid.UUID]) -> None:
        """Create all directories and reset their checkpoints. Blocks; any thread.

        A partition that cannot be created does not stop the others: `pop` raises its error.
        """
        self.log_dirs = log_dirs
        self._topic_ids = topic_ids
        self._created: dict[Key, LoadedLog] = {}
        self._errors: dict[Key, Exception] = {}
        by_dir: dict[int, list[Key]] = {}
        for key, log_dir in self.log_dirs.items():
            by_dir.setdefault(id(log_dir), []).append(key)
        with ThreadPoolExecutor(_CREATING_THREADS, "create") as pool:
            list(pool.map(self._create, self.log_dirs))
        for keys in by_dir.values():
            log_dir = self.log_dirs[keys[0]]
            try:
                if not log_dir.reset_checkpoints(set(keys)):
                    fsync_directory(log_dir.path)
            except OSError as error:
                self._errors.update(dict.fromkeys(keys, error))

    def _create(self, key: Key) -> None:
        path = self._path(key)
        try:
            path.mkdir(DIRECTORY_MODE)
        except OSError as error:
            self._errors[key] = error
            return
        try:
            self._created[key] = create_log_files(path, self._topic_ids[key], log_start_offset=0, leader_epoch=0)
        except Exception as error:  # noqa: BLE001 - raised by `pop`
            self._errors[key] = error
            remove(path)

    def pop(self, key: Key) -> LoadedLog:
        """Return the empty log of a partition, which belongs to the caller from now on.

        Raises:
            FileExistsError: If the directory existed already.
            OSError: If it could not be created.
        """
        if key in self._errors:
            raise self._errors[key]
        return self._created.pop(key)

    def remove_unused(self) -> None:
        """Remove the directories that were not taken, because the next start would load them as partitions."""
        for key in self._created:
            remove(self._path(key))
        self._created.clear()

    def _path(self, key: Key) -> Path:
        return self.log_dirs[key].path / "{}-{}".format(*key)
