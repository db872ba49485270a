"""Log directories of this broker, and their opening at the start: creation, locks, and identity in meta.properties."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.fsync import make_directories
from kafkalog_spark.format.meta_properties import (
    META_PROPERTIES_FILE,
    VERSION_KRAFT,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kafkalog_spark.format.partition_metadata import new_uuid, uuid_to_text
from kafkalog_spark.log.read.partition_listing import is_segment
from kafkalog_spark.log.write.log_dir_lock import LogDirLock


class LogDirError(KafkalogError):
    """The log directories cannot be used: none of them works, or they belong to another broker."""


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
    """Create and lock the log directories, and complete their meta.properties. One that cannot be written is offline.

    Args:
        cluster_id: Cluster ID that meta.properties must have; by default any, and a new one for new directories.

    Raises:
        LogDirLocked: If another process has locked a directory.
        LogDirError: If no directory works, meta.properties is damaged or of another node or cluster, or a directory
            without meta.properties is a partition's directory or contains log directories.
        OSError: If the process is out of file descriptors. After any error no lock is held.
    """
    unique = list(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))
    if not unique:
        raise LogDirError("no log directory is given", hint="set log.dirs or --log-dir")
    opened = [LogDirectory(path) for path in unique]
    try:
        metas: dict[Path, MetaProperties] = {}
        for log_dir in opened:
            meta = _lock(log_dir)
            if meta is not None:
                metas[log_dir.path] = meta
        cluster_id = agree_on_cluster_id(metas, node_id, cluster_id)
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        for log_dir in opened:
            if log_dir.is_online:
                _complete_meta_properties(log_dir, metas.get(log_dir.path), cluster_id, node_id, now)
        dirs = LogDirectories(tuple(opened), cluster_id, node_id)
        if not dirs.online:
            raise LogDirError(f"no log directory works: {dirs.failures()}")
    except BaseException:
        for log_dir in opened:
            log_dir.close()
        raise
    return dirs


def _lock(log_dir: LogDirectory) -> MetaProperties | None:
    """Create and lock a log directory; return its meta.properties, or None if it is new or went offline."""
    try:
        with log_dir.guarded():
            make_directories(log_dir.path)
            log_dir.lock = LogDirLock.acquire(log_dir.path)
            meta = read_meta_properties(log_dir.path / META_PROPERTIES_FILE)
            if meta is None:
                _check_holds_no_other_logs(log_dir.path)
            return meta
    except (CorruptFile, UnsupportedFormat) as error:
        raise LogDirError(
            error.what, path=error.path, position=error.position, hint=error.hint or "restore it from a backup"
        ) from None
    return None


def _check_holds_no_other_logs(path: Path) -> None:
    """Raise LogDirError if a new log directory is a partition's directory, or contains log directories.

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


def agree_on_cluster_id(metas: Mapping[Path, MetaProperties], node_id: int, cluster_id: str | None) -> str:
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
            cluster_id = meta.cluster_id
            expected_by = str(path)
        if meta.directory_id is not None:
            other = directory_ids.setdefault(meta.directory_id, path)
            if other != path:
                raise LogDirError(
                    f"directory.id {meta.directory_id} is also that of {other}",
                    path=str(path / META_PROPERTIES_FILE),
                    hint="one is a copy of the other: remove one of them from log.dirs",
                )
    return uuid_to_text(new_uuid()) if cluster_id is None else cluster_id


def _complete_meta_properties(
    log_dir: LogDirectory, meta: MetaProperties | None, cluster_id: str, node_id: int, now: datetime.datetime
) -> None:
    """Write the properties that meta.properties lacks; unknown ones are kept. Sets the directory's ID."""
    log_dir.id = (meta.directory_id if meta else None) or uuid_to_text(new_uuid())
    whole = MetaProperties(VERSION_KRAFT, cluster_id, node_id, log_dir.id, meta.other if meta else {})
    if meta != whole:
        with log_dir.guarded():
            write_meta_properties(log_dir.path / META_PROPERTIES_FILE, whole, now)
