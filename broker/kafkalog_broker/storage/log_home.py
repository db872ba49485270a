"""A log directory and its partitions as the log manager knows them, and what its checkpoint files are to say."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog_broker.storage.checkpoints import LogDirCheckpoints, OffsetCheckpoint
from kafkalog_broker.storage.housekeeping import Task
from kafkalog_broker.storage.log_dir import LogDir
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

_log = logging.getLogger(__name__)

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True, eq=False)
class LogHome:
    """A log directory. was_clean: it was shut down cleanly the last time. is_listed: its partitions are known.
    is_loaded: its logs were recovered, where that was necessary.

    partitions: how many it holds. writing: held while its checkpoints are written.
    """

    log_dir: LogDir
    checkpoints: LogDirCheckpoints
    was_clean: bool = False
    is_listed: bool = False
    is_loaded: bool = False
    partitions: int = 0
    writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> Path:
        return self.log_dir.path

    def forget_checkpointed(self, keys: Collection[Key]) -> None:
        """A deleted partition's offsets must not be taken for those of a new one of its name: with a log start offset
        above its end, all its records would be dropped. Blocks; any thread. Raises OSError."""
        for checkpoint in self.checkpoints.all:
            with self.writing:
                kept = {key: offset for key, offset in checkpoint.known.items() if key not in keys}
                if len(kept) < len(checkpoint.known):
                    checkpoint.write(kept)


@dataclass(slots=True, eq=False)
class LogEntry:
    """A partition of this broker. log: None until it is opened. failure: why it cannot be opened.

    seen_end: LEO when idle logs were looked for last. checkpointed_epoch: the last one of leader-epoch-checkpoint, that
    of a log which is not open yet; None when it was not read, or cannot be.
    """

    topic: str
    partition: int
    topic_id: uuid.UUID
    home: LogHome
    path: Path
    log: Log | None = None
    failure: str | None = None
    seen_end: int = -1
    checkpointed_epoch: int | None = None

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def is_online(self) -> bool:
        """Whether it can be served, as far as is known without opening it."""
        return self.failure is None and self.home.log_dir.is_online and (self.log is None or self.log.failure is None)

    @property
    def leader_epoch(self) -> int | None:
        """The epoch its leader writes with; None when the log has to be opened to know it."""
        return self.checkpointed_epoch if self.log is None else self.log.leader_epoch

    def read_leader_epoch(self) -> None:
        """Learn the epoch from the file, a tenth of the work of opening the log. Any thread. What cannot be read is
        left to opening, which repairs it."""
        try:
            self.checkpointed_epoch = max(LeaderEpochs.read(self.path).latest, 0)
        except (CorruptFile, UnsupportedFormat, OSError) as error:
            _log.debug("%s: the leader epoch is not known yet: %s", self.path, error)

    @property
    def recovery_point(self) -> int:
        """What the checkpoint says; 0 when it says nothing."""
        return self.home.checkpoints.recovery_points.known.get(self.key, 0)

    @property
    def log_start_offset(self) -> int:
        """What the checkpoint says; 0 when it says nothing."""
        return self.home.checkpoints.log_start_offsets.known.get(self.key, 0)


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """What one file is to say."""

    checkpoint: OffsetCheckpoint
    offsets: list[tuple[LogEntry, int]]


def checkpoint_contents(home: LogHome, entries: Iterable[LogEntry], tasks: Collection[Task]) -> list[CheckpointContent]:
    """The files that `tasks` ask for. Of a log that was not opened a file says what it said before."""
    files = home.checkpoints
    sources: tuple[tuple[Task, OffsetCheckpoint, Callable[[Log], int | None]], ...] = (
        (Task.RECOVERY_POINTS, files.recovery_points, lambda log: log.recovery_point),
        (Task.LOG_START_OFFSETS, files.log_start_offsets, _start_above_first_segment),
        (Task.HIGH_WATERMARKS, files.high_watermarks, lambda log: log.high_watermark),
    )
    mine = [entry for entry in entries if entry.home is home]
    contents = []
    for task, checkpoint, of in sources:
        if task in tasks:
            offsets = (
                (entry, checkpoint.known.get(entry.key) if entry.log is None else of(entry.log)) for entry in mine
            )
            contents.append(
                CheckpointContent(checkpoint, [(entry, offset) for entry, offset in offsets if offset is not None])
            )
    return contents


def _start_above_first_segment(log: Log) -> int | None:
    """The log start offset where the segments do not tell it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
