"""How much room log directories and partitions take, for DescribeLogDirs (KIP-113, KIP-827)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory


class PartitionUsage(NamedTuple):
    """size: bytes of the .log files."""

    topic: str
    partition: int
    size: int


@dataclass(frozen=True, slots=True)
class LogDirUsage:
    """failure: why the directory is offline, None while it works. Bytes of the file system are -1 when unknown."""

    path: Path
    failure: str | None
    total_bytes: int
    usable_bytes: int
    partitions: tuple[PartitionUsage, ...]


def directory_usage(log_dir: LogDirectory, partitions: Sequence[PartitionUsage]) -> LogDirUsage:
    """As DescribeLogDirs wants it; an offline directory has no partitions and no sizes."""
    total = usable = -1
    if log_dir.is_online:
        try:
            facts = os.statvfs(log_dir.path)
            total, usable = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
        except OSError as error:
            log_dir.fail(error)
    if not log_dir.is_online:
        return LogDirUsage(log_dir.path, log_dir.failure, -1, -1, ())
    return LogDirUsage(log_dir.path, None, total, usable, tuple(partitions))
