"""A log directory of the broker: its lock, its identity (meta.properties), its checkpoints, whether it can be used.

A directory that fails (read-only, full of errors, unplugged) goes offline with its partitions; the others serve on.
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
from kafkalog_spark.format.atomic_file import make_directories
from kafkalog_spark.format.checkpoint import TopicPartition
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
    """The log directories cannot be used as they are: none of them works, or they belong to another broker."""


class LogDirectory:
    """Entry of log.dirs. id: directory.id. failure: why it is offline, None while it works. on_failure: called with the
    error, once, by whoever met it and in the thread of that. is_listed: its partitions are known. is_loaded: its logs
    were recovered, where that was necessary. partitions: how many it holds. writing: held while its checkpoints are
    written. truncations: how often `lower_checkpointed` was called."""

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
        """Take the directory offline, with a line in the log, unless it is."""
        if self.failure is not None:
            return
        self.failure = str(error)
        _log.error("log directory %s is offline, its partitions too: %s", self.path, self.failure)
        if self.on_failure is not None:
            self.on_failure(error)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Take the directory offline when the block raises OSError, and suppress the error. An error that says nothing
        about the files, such as a lack of descriptors, is raised instead."""
        try:
            yield
        except OSError as error:
            if file_fault(error) is FileFault.NONE:
                raise
            self.fail(error)

    def begin_checkpointed(self, keys: Collection[TopicPartition]) -> bool:
        """Reset the checkpoints of new partitions: a recovery point of 0, and no other offset.

        The offsets of a deleted partition of the same name must not be taken for theirs: with a log start offset above
        its end, a log would lose all its records. The recovery point shows that the log has no gaps (see
        `LogEntry.contiguous_from`). Blocks; any thread. On disk on return. Raises OSError.

        Returns:
            True if a checkpoint was written. The directory was then synced, with every name in it.
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

    def lower_checkpointed(self, key: TopicPartition, offset: int) -> None:
        """Before a log is truncated to `offset`: what is written to it next is neither on disk nor clean, and lies
        above its log start offset, whatever the files say, or would say next. Blocks; any thread. Raises OSError."""
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
    """All of log.dirs, in the order of the configuration, and what their meta.properties agree upon."""

    all: tuple[LogDirectory, ...]
    cluster_id: str
    node_id: int

    @property
    def online(self) -> list[LogDirectory]:
        return [log_dir for log_dir in self.all if log_dir.is_online]

    def failures(self) -> str:
        return "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.all)

    def close(self) -> None:
        for log_dir in self.all:
            log_dir.close()


def open_log_dirs(
    paths: Iterable[str | os.PathLike[str]], node_id: int, now_ms: int, cluster_id: str | None = None
) -> LogDirectories:
    """Make, lock and identify the log directories; one that cannot be written is offline. cluster_id: what
    meta.properties must say; by default what it says, or a new one. Raises LogDirLocked, and LogDirError for a damaged
    meta.properties, for one of another node or cluster, for a directory that holds logs of another one
    (`check_holds_no_other_logs`), and when no directory works; OSError for a lack of descriptors. No lock is held
    then."""
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
                meta = metas.get(log_dir.path)  # what it lacks is written; what else stands there is kept
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
    """Raise LogDirError for a new log directory that is the parent of log directories, or a partition's directory.

    A broker would begin an empty cluster there, and serve none of the topics. Kafka refuses both, as it takes no
    directory and no file in a log directory that is not its own. Raises OSError.
    """
    names = os.listdir(path)
    if any(map(is_segment, names)):
        raise LogDirError("is a partition's directory", path=str(path), hint=f"name {path.parent}")
    if inner := sorted(name for name in names if (path / name / META_PROPERTIES_FILE).exists()):
        are = "is a log directory" if len(inner) == 1 else "are log directories"
        raise LogDirError(
            f"is no log directory, but {', '.join(inner)} in it {are}",
            path=str(path),
            hint=f"name {', '.join(str(path / name) for name in inner)}",
        )


def agree(metas: Mapping[Path, MetaProperties], node_id: int, cluster_id: str | None) -> str:
    """The cluster id of directories that say `metas`; a new one when none says anything. Raises LogDirError when one
    belongs to another node or cluster, or two share a directory id (MetaPropertiesEnsemble)."""
    directory_ids: dict[str, Path] = {}
    expected_by = "the configuration"
    for path, meta in metas.items():
        if meta.node_id is not None and meta.node_id != node_id:
            raise LogDirError(
                f"the directory belongs to node {meta.node_id}, this broker is node {node_id}",
                path=str(path / META_PROPERTIES_FILE),
                hint="set node.id to that of the directory, or take another log directory",
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
                    hint="one is a copy of the other: take one of them out of log.dirs",
                )
    return uuid_to_text(new_uuid()) if cluster_id is None else cluster_id
