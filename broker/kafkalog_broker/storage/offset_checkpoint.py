"""A checkpoint file of a log directory, as a broker keeps it: read with patience, written when it changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.log.format.checkpoint import TopicPartition, read_offset_checkpoint, write_offset_checkpoint

_log = logging.getLogger(__name__)


class OffsetCheckpoint:
    """One file: {(topic, partition): offset}.

    Kafka reads an unreadable checkpoint as an empty one: a missing recovery point costs a scan, a missing log start
    offset brings deleted records back, and neither loses one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._on_disk: dict[TopicPartition, int] | None = None

    @property
    def known(self) -> Mapping[TopicPartition, int]:
        """What was read or written last."""
        return self._on_disk or {}

    def read(self) -> dict[TopicPartition, int]:
        """What the file says; empty when it is missing or, with a warning, when it is damaged. Raises OSError."""
        try:
            offsets = read_offset_checkpoint(self.path)
        except (CorruptFile, UnsupportedFormat) as error:
            _log.warning("%s; taken as empty", error)
            return {}
        self._on_disk = dict(offsets) if self.path.exists() else None
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Make the file say this; False when it does already. On disk on return. Raises OSError."""
        if self._on_disk == offsets:
            return False
        written = dict(offsets)
        write_offset_checkpoint(self.path, written)
        self._on_disk = written
        return True
