"""Where a partition lies, and how it is opened from there with what the checkpoints of its log directory say."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import Self

from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_log import NO_HINTS, OpenHints, PartitionLog
from kafkalog_spark.log.read.small_files import Checkpoints, topic_id
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.local_store import LOCAL


@dataclass(frozen=True)
class PartitionPlace:
    """Where a partition lies. Small and picklable: a Spark task opens the partition with nothing else."""

    topic: str
    partition: int
    directory: str
    store: Store = LOCAL

    def open(
        self,
        *,
        pass_over_damage: bool = False,
        known_end: LogEnd | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> PartitionLog:
        """Read the checkpoints, then the partition; see PartitionLog. checkpoints: those read before. Raises
        NotALogDirectory."""
        if not self.has_checkpoints:
            return self.open_unread(OpenHints(pass_over_damage=pass_over_damage, known_end=known_end))
        # Checkpoints first: read later, they could be ahead of what was seen of the log.
        said, parent, tp = checkpoints or Checkpoints(), self.log_dir, (self.topic, self.partition)
        recovery_point, log_start = said.recovery_point(self.store, parent, tp), said.log_start(self.store, parent, tp)
        return self.open_unread(OpenHints(recovery_point, log_start, pass_over_damage, known_end))

    def open_unread(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        """Open the partition without reading checkpoints. Raises NotALogDirectory."""
        return PartitionLog(self.topic, self.partition, self.directory, self.store, hints)

    @property
    def log_dir(self) -> str:
        """The log directory that it lies in."""
        return os.path.dirname(self.directory)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Stores of all directories that hold the partition."""
        return (self.store,)

    @property
    def has_checkpoints(self) -> bool:
        """True if a log directory's checkpoints speak of it."""
        return True

    @property
    def local(self) -> PartitionPlace:
        """Where it lies in a log directory; itself where there is no other."""
        return self

    def exists(self) -> bool:
        """True if its directory is there."""
        return self.store.exists(self.directory)

    def topic_id(self) -> uuid.UUID | None:
        """Topic id from partition.metadata; None without."""
        return topic_id(self.store, self.directory)

    def carrying(self, log: PartitionLog, start: int, end: int | None) -> Self:
        """The place for a task that reads [start, end) of the log that was opened here: with what saves it requests.
        end: None for the end that the log has by then."""
        return self
