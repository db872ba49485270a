"""Commit log on a disk: plain files in the log directory, written under its locks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.sink.commit_log import CommitLog, unfinished
from kafkalog_spark.sink.commit_record import CommitRecord
from kafkalog_spark.sink.local_directory import LocalDirectory

PREFIX = "kafkalog.commits-"


@dataclass(frozen=True)
class LocalCommitLog(CommitLog):
    """Commit log in files `kafkalog.commits-*`."""

    directory: LocalDirectory

    prefix = PREFIX
    late_puts = False
    look_seconds = math.inf  # no other sink commits while this one holds the locks

    def _resolve_failed_put(self, error: OSError, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Raise the error. If the record can be read, only the last fsync failed, and the write is committed."""
        try:
            is_committed = self.read(number).id == record.id
        except (OSError, KafkalogError):
            is_committed = False
        if is_committed:
            raise unfinished(self.directory, error) from error
        raise error from None

    def _files(self, after: str = "") -> Sequence[str]:
        names = self.directory.names_in_root()
        files = (name.removeprefix(self.prefix) for name in names if name.startswith(self.prefix))
        return sorted(name for name in files if name > after)

    def _superseded(self, number: int) -> Sequence[str]:
        """Return all records: no other process can write one without the locks."""
        return self._files()
