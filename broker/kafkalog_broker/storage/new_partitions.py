"""Directories for new partitions, made in one go: their names reach the disk with one fsync a log directory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_table import Key
from kafkalog_spark.log.format.durable import DIRECTORY_MODE, fsync_directory

_log = logging.getLogger(__name__)


class NewPartitions:
    """`log_dirs`: which log directory each new partition, of whatever topic, goes to."""

    def __init__(self, log_dirs: Mapping[Key, LogDirectory]) -> None:
        self._log_dirs = log_dirs
        self._errors: dict[Key, OSError] = {}
        self._unused: set[Key] = set()

    def make(self) -> None:
        """Make the directories; they are on disk on return, and no checkpoint speaks of former partitions of their
        names. Any thread. What fails shows in `take`."""
        for partition in self._log_dirs:
            try:
                self._path(partition).mkdir(DIRECTORY_MODE)
                self._unused.add(partition)
            except OSError as error:
                self._errors[partition] = error
        for log_dir in {id(log_dir): log_dir for log_dir in self._log_dirs.values()}.values():
            try:
                log_dir.forget_checkpointed({key for key, other in self._log_dirs.items() if other is log_dir})
                fsync_directory(log_dir.path)
            except OSError as error:
                self._errors.update(
                    {partition: error for partition, other in self._log_dirs.items() if other is log_dir}
                )

    def log_dir_of(self, partition: Key) -> LogDirectory | None:
        """The log directory with the partition's directory; None when it went offline, or is none of these."""
        log_dir = self._log_dirs.get(partition)
        return log_dir if log_dir is not None and log_dir.is_online else None

    def take(self, partition: Key) -> Path:
        """The directory, which belongs to a log from now on. Raises OSError when it could not be made: FileExistsError
        when something is in its place."""
        if partition in self._errors:
            raise self._errors[partition]
        self._unused.discard(partition)
        return self._path(partition)

    def remove_unused(self) -> None:
        """Remove what nobody took: an empty directory would be a partition at the next start."""
        for partition in self._unused:
            try:
                self._path(partition).rmdir()
            except OSError as error:
                _log.warning("the empty directory %s could not be removed: %s", self._path(partition), error)
        self._unused.clear()

    def _path(self, partition: Key) -> Path:
        return self._log_dirs[partition].path / "{}-{}".format(*partition)
