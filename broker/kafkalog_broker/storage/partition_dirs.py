"""Partition directories in a log directory, found when the broker starts."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_spark.errors import CorruptFile, printable
from kafkalog_spark.format.names import DirKind
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_partition_metadata,
)
from kafkalog_spark.log.read.local_log_dir import partition_dirs as list_partition_dirs

_log = logging.getLogger(__name__)


class PartitionDir(NamedTuple):
    """Live partition directory.

    Attributes:
        topic_id: ID in partition.metadata; None if the file is missing or damaged.
        failure: Why the partition cannot be served, or None.
    """

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None
    failure: str | None = None


def find_partition_dirs(log_dir: LogDirectory) -> tuple[list[PartitionDir], list[Path]]:
    """List the partition directories of a log directory.

    Returns:
        The live directories by topic and partition, and the `-delete` directories, which are to be removed.

    Raises:
        OSError: If the log directory cannot be read.
    """
    live: list[PartitionDir] = []
    deleted: list[Path] = []
    for parsed, path_text in list_partition_dirs(log_dir.path):
        path = Path(path_text)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(_read_partition_dir(parsed.topic, parsed.partition, log_dir, path))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is not served, because it is a -%s directory", path, parsed.kind.value)
    return sorted(live, key=lambda directory: (directory.topic, directory.partition)), deleted


def _read_partition_dir(topic: str, partition: int, log_dir: LogDirectory, path: Path) -> PartitionDir:
    """Return a live partition directory with its topic ID. Raises OSError if partition.metadata cannot be read."""
    topic_id = failure = None
    try:
        if path.is_symlink():
            # Its target may be another partition or foreign files, and would be written to.
            target = os.readlink(path)
            failure = f"{path} is a symbolic link to {target}; add the log directory that contains {target} to log.dirs"
        else:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; using the topic ID of the registry or of another partition", error)
    except PermissionError as error:
        failure = f"{path} cannot be read: {error}"
    return PartitionDir(topic, partition, log_dir, path, topic_id, None if failure is None else printable(failure))
