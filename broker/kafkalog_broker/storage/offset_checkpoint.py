"""Checkpoint file of one offset per partition in a log directory, written only if the offsets have changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format import checkpoint
from kafkalog_spark.format.checkpoint import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class OffsetCheckpoint:
    """Checkpoint file of offsets (Kafka: `OffsetCheckpointFile`).

    As in Kafka, an unreadable file is treated as empty. Without a recovery point the log is scanned at the next start,
    and without a log start offset deleted records become visible again, but no record is lost.
    """

    path: Path
    _on_disk: Mapping[TopicPartition, int] | None = None

    @property
    def known(self) -> Mapping[TopicPartition, int]:
        """Offsets in the file, as it was last read or written; empty if it was neither."""
        return self._on_disk or {}

    def read(self) -> dict[TopicPartition, int]:
        """Read the file; empty if it is missing or, with a warning, damaged. Raises OSError."""
        try:
            offsets = checkpoint.read_offset_checkpoint(self.path)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; the checkpoint is treated as empty", error)
            return {}
        self._on_disk = dict(offsets) if self.path.exists() else None
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the file and sync it to disk, unless it has this content already. Raises OSError."""
        if self._on_disk != offsets:
            written = dict(offsets)
            checkpoint.write_offset_checkpoint(self.path, written)
            self._on_disk = written
