"""Interface for the staged files of a commit before they are published, implemented for a disk and for a bucket."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from kafkalog_spark.sink.commit_record import CommitRecord, PlannedSegment
from kafkalog_spark.sink.log_directory import LogDirectory

_log = logging.getLogger(__name__)


class StagedSegments(ABC):
    """Staged segments of a commit that are not published yet. All methods raise OSError."""

    directory: LogDirectory

    @abstractmethod
    def prepare(self, record: CommitRecord) -> None:
        """Ensure, before a record is put, that the staged files it names are complete and on disk."""

    @abstractmethod
    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Return the unpublished rest of a commit whose writer died.

        Segments have new offsets in partitions to which another writer has appended since.
        """

    def warn_deleted(self, segments: Sequence[PlannedSegment]) -> None:
        """Log that a partition was deleted before these segments of a commit were published."""
        lost = sum(segment.records for segment in segments)
        _log.warning("%s was deleted: %d records that were committed to it are lost", segments[0].directory, lost)
