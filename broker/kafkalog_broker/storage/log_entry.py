"""Entry of the log table: one partition, its log if it is open, and why it is offline."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat, printable

_log = logging.getLogger(__name__)

Key = tuple[str, int]
"""Topic and partition number."""


@dataclass(slots=True, eq=False)
class LogEntry:
    """Partition of this broker.

    Attributes:
        log: The log; None until it is opened.
        failure: Why the log cannot be opened, or None.
        seen_end: Log end offset when logs without appends were last searched for.
        checkpointed_epoch: Latest epoch of leader-epoch-checkpoint while the log is not open; None if it was not read.
        opening: Held while the log is opened, because coordinators open logs on other threads.
        is_recovering: True while a background thread recovers the log.
    """

    topic: str
    partition: int
    topic_id: uuid.UUID
    log_dir: LogDirectory
    path: Path
    log: Log | None = None
    failure: str | None = None
    seen_end: int = -1
    checkpointed_epoch: int | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)
    is_recovering: bool = False

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def is_online(self) -> bool:
        """True if the partition can be served, as far as is known without opening its log."""
        if self.failure is not None or self.is_recovering or not self.log_dir.is_online:
            return False
        return self.log is None or self.log.failure is None

    @property
    def leader_epoch(self) -> int | None:
        """Current leader epoch; None if the log has to be opened to know it."""
        return self.checkpointed_epoch if self.log is None else self.log.leader_epoch

    def read_leader_epoch(self) -> None:
        """Read the leader epoch from its file, which is cheaper than opening the log. Any thread.

        An unreadable file is repaired when the log is opened.
        """
        try:
            self.checkpointed_epoch = max(LeaderEpochs.read(self.path).latest, 0)
        except (CorruptFile, UnsupportedFormat, OSError) as error:
            _log.debug("%s: the leader epoch cannot be read yet: %s", self.path, error)

    @property
    def recovery_point(self) -> int:
        """Checkpointed recovery point, 0 without one."""
        return self.log_dir.recovery_points.known.get(self.key, 0)

    @property
    def contiguous_from(self) -> int | None:
        """Offset from which on compaction has left no gap between segments; None without a checkpointed recovery point.

        The cleaner raises the checkpointed recovery point before it replaces segments, and its own checkpoint
        afterwards.
        """
        recovery_point = self.log_dir.recovery_points.known.get(self.key)
        if recovery_point is None:
            return None
        return max(recovery_point, self.log_dir.cleaner_offsets.known.get(self.key, 0))

    @property
    def log_start_offset(self) -> int:
        """Checkpointed log start offset, 0 without one."""
        return self.log_dir.log_start_offsets.known.get(self.key, 0)


def take_offline(entry: LogEntry, error: OSError, message: str) -> None:
    """Take a partition offline because its directory cannot be used, or its log directory if the disk is at fault.

    A transient error changes nothing. A denied permission says nothing about the disk while a log is opened, so the
    other partitions stay online.

    Args:
        message: Description of the error for clients and the log.
    """
    fault = FileFault.LOG if isinstance(error, PermissionError) else file_fault(error)
    if fault is FileFault.DIRECTORY:
        entry.log_dir.fail(error)
    elif fault is FileFault.LOG:
        entry.failure = printable(message)
        _log.error("%s-%d is offline until the next start: %s", *entry.key, entry.failure)


def storage_error(topic: str, partition: int, message: str) -> BrokerError:
    """Return a kafka_storage_error for a partition."""
    return BrokerError(ErrorCode.kafka_storage_error, message, topic_partition=f"{topic}-{partition}")
