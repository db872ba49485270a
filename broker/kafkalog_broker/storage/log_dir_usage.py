"""Disk usage of the log directories, for DescribeLogDirs and metrics (KIP-113, KIP-827)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_entry import Key
from kafkalog_broker.storage.log_table import LogTable
from kafkalog_spark.log.read.local_log_dir import log_bytes


class LogDirUsage(NamedTuple):
    """Disk usage of one log directory.

    Attributes:
        total_bytes: Size of its file system; -1 if the directory is offline.
        usable_bytes: Free bytes of its file system; -1 if the directory is offline.
        partition_bytes: Size of the .log files of each partition.
    """

    log_dir: LogDirectory
    total_bytes: int
    usable_bytes: int
    partition_bytes: dict[Key, int]


def read_log_dir_usages(table: LogTable) -> list[LogDirUsage]:
    """Return the disk usage of each log directory. A directory whose file system cannot be read goes offline."""
    usages = []
    for log_dir in table.dirs.all:
        total = usable = -1
        sizes: dict[Key, int] = {}
        if log_dir.is_online:
            with log_dir.guarded():
                file_system = os.statvfs(log_dir.path)
                total = file_system.f_blocks * file_system.f_frsize
                usable = file_system.f_bavail * file_system.f_frsize
        if log_dir.is_online:
            entries = [entry for entry in table.entries.values() if entry.log_dir is log_dir]
            sizes = {
                entry.key: log_bytes(entry.path) if entry.log is None else entry.log.size_bytes for entry in entries
            }
        usages.append(LogDirUsage(log_dir, total, usable, sizes))
    return usages


def read_usable_bytes(log_dirs: Sequence[LogDirectory]) -> list[tuple[Path, int | None]]:
    """Return the path and the free bytes of each log directory's file system; None instead of the bytes if unknown.

    Any thread; may wait for a disk.
    """
    usable: list[tuple[Path, int | None]] = []
    for log_dir in log_dirs:
        free = None
        if log_dir.is_online:
            with contextlib.suppress(OSError):
                file_system = os.statvfs(log_dir.path)
                free = file_system.f_bavail * file_system.f_frsize
        usable.append((log_dir.path, free))
    return usable
