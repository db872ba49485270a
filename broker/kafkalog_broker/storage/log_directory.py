"""Log directory of the broker: its lock, its identity (meta.properties), its checkpoints, its availability.

A directory that fails (read-only, I/O errors, unplugged) goes offline with its partitions; the others are still served.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.offset_checkpoint import OffsetCheckpoint
from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.fsync import make_directories
from kafkalog_spark.format.meta_properties import (
    META_PROPERTIES_FILE,
    VERSION_KRAFT,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kafkalog_spark.format.partition_metadata import new_uuid, uuid_to_text
from kafkalog_spark.log.read.missing_segments import is_segment
from kafkalog_spark.log.write.log_dir_lock import LogDirLock

_log = logging.getLogger(__name__)


class LogDirError(KafkalogError):
    """The log directories cannot be used: none of them works, or they belong to another broker."""


class LogDirectory:
    """Entry of log.dirs.

    Attributes:
        id: directory.id.
        failure: Why it is offline; None while it works.
        on_failure: Called once with the error, on the thread that met it.
        was_clean: True if it had a clean-shutdown marker.
        is_listed: True once its partitions are known.
        is_loaded: True once its logs were recovered, if that was necessary.
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

        An error that says nothing about the files, such as a lack of descriptors, is raised instead.
        """
        try:
            yield
        except OSError as error:
            if file_fault(error) is FileFault.NONE:
                raise
            self.fail(error)

    def reset_checkpoints(self, keys: Collection[TopicPartition]) -> bool:
        """Reset the checkpoints of new partitions: recovery point 0, and no other offset. On disk on return.

        New partitions must not inherit the offsets of a deleted partition of the same name: with a log start offset
        above its end, a log would lose all its records. The recovery point shows that the log has no gaps
        (`LogEntry.contiguous_from`). Blocks; any thread.

        Returns:
            True if a checkpoint was written. The directory was then synced, with every name in it.

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
        """Checkpoint that a log is on disk below `offset`. Blocks; any thread. On disk on return. Raises OSError."""
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


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """All of log.dirs in configured order, with the cluster ID and node ID of their meta.properties."""

    all: tuple[LogDirectory, ...]
    cluster_id: str
    node_id: int

    @property
    def online(self) -> list[LogDirectory]:
        return [log_dir for log_dir in self.all if log_dir.is_online]

    def failures(self) -> str:
        """Describe the failures of all directories."""
        return "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.all)

    def close(self) -> None:
        for log_dir in self.all:
            log_dir.close()


def open_log_dirs(
    paths: Iterable[str | os.PathLike[str]], node_id: int, now_ms: int, cluster_id: str | None = None
) -> LogDirectories:
    """Create, lock and identify the log directories. One that cannot be written is offline.

    Args:
        cluster_id: Cluster ID that meta.properties must have; by default the one that it has, or a new one.

    Raises:
        LogDirLocked: If another process has locked a directory.
        LogDirError: If no directory works, meta.properties is damaged or of another node or cluster, or a new directory
            has logs of another one (`check_holds_no_other_logs`).
        OSError: If the process is out of file descriptors. After any error no lock is held.
    """
    unique = list(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))
    if not unique:
        raise LogDirError("no log directory is given", hint="set log.dirs or --log-dir")
    opened = [LogDirectory(path) for path in unique]
    try:
        metas: dict[Path, MetaProperties] = {}
        for log_dir in opened:
            try:
                with log_dir.guarded():
                    make_directories(log_dir.path)
                    log_dir.lock = LogDirLock.acquire(log_dir.path)
                    meta = read_meta_properties(log_dir.path / META_PROPERTIES_FILE)
                    if meta is not None:
                        metas[log_dir.path] = meta
                    else:
                        check_holds_no_other_logs(log_dir.path)
            except (CorruptFile, UnsupportedFormat) as error:
                raise LogDirError(
                    error.what, path=error.path, position=error.position, hint=error.hint or "restore it from a backup"
                ) from None
        agreed = agree(metas, node_id, cluster_id)
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        for log_dir in opened:
            if log_dir.is_online:
                meta = metas.get(log_dir.path)  # missing properties are added, unknown ones are kept
                log_dir.id = (meta.directory_id if meta else None) or uuid_to_text(new_uuid())
                whole = MetaProperties(VERSION_KRAFT, agreed, node_id, log_dir.id, meta.other if meta else {})
                if meta != whole:
                    with log_dir.guarded():
                        write_meta_properties(log_dir.path / META_PROPERTIES_FILE, whole, now)
        dirs = LogDirectories(tuple(opened), agreed, node_id)
        if not dirs.online:
            raise LogDirError(f"no log directory works: {dirs.failures()}")
    except BaseException:
        for log_dir in opened:
            log_dir.close()
        raise
    return dirs


def check_holds_no_other_logs(path: Path) -> None:
    """Raise LogDirError if a new log directory is a partition's directory, or the parent of log directories.

    A broker would start an empty cluster there and serve none of the existing topics. Kafka refuses both, because it
    allows no foreign file or directory in a log directory. Raises OSError.
    """
    names = os.listdir(path)
    if any(map(is_segment, names)):
        raise LogDirError("is a partition's directory", path=str(path), hint=f"use {path.parent}")
    if inner := sorted(name for name in names if (path / name / META_PROPERTIES_FILE).exists()):
        are = "is a log directory" if len(inner) == 1 else "are log directories"
        raise LogDirError(
            f"is not a log directory, but {', '.join(inner)} in it {are}",
            path=str(path),
            hint=f"use {', '.join(str(path / name) for name in inner)}",
        )


def agree(metas: Mapping[Path, MetaProperties], node_id: int, cluster_id: str | None) -> str:
    """Return the cluster ID of the log directories, or a new one if none has any (Kafka: `MetaPropertiesEnsemble`).

    Raises:
        LogDirError: If one belongs to another node or cluster, or two have the same directory ID.
    """
    directory_ids: dict[str, Path] = {}
    expected_by = "the configuration"
    for path, meta in metas.items():
        if meta.node_id is not None and meta.node_id != node_id:
            raise LogDirError(
                f"the directory belongs to node {meta.node_id}, this broker is node {node_id}",
                path=str(path / META_PROPERTIES_FILE),
                hint="set node.id to that of the directory, or use another log directory",
            )
        if meta.cluster_id is not None:
            if cluster_id is not None and meta.cluster_id != cluster_id:
                raise LogDirError(
                    f"the directory belongs to cluster {meta.cluster_id}, {expected_by} says {cluster_id}",
                    path=str(path / META_PROPERTIES_FILE),
                    hint="the log directories of a broker must come from one cluster",
                )
            cluster_id, expected_by = meta.cluster_id, str(path)
        if meta.directory_id is not None:
            other = directory_ids.setdefault(meta.directory_id, path)
            if other != path:
                raise LogDirError(
                    f"directory.id {meta.directory_id} is also that of {other}",
                    path=str(path / META_PROPERTIES_FILE),
                    hint="one is a copy of the other: remove one of them from log.dirs",
                )
    return uuid_to_text(new_uuid()) if cluster_id is None else cluster_id
