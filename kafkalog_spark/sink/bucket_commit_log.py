"""Commit log in a bucket: objects that several writers put at once, without a lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import KafkalogError, WriteUnfinished
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.commit_log import CommitLog, LastCommit
from kafkalog_spark.sink.commit_record import CommitRecord, format_record

COMMITS = "kafkalog.commits"

RETENTION_SECONDS = 7 * 24 * 3600
"""How long a commit record is kept after a newer one was put, and a staged object that no commit uses.

A writer that is slow to put commit record N must fail: so record N has to exist for as long as such a writer can live.
Writers read the commit log again after `look_seconds`, and S3 refuses requests that were signed 15 minutes ago. The
value is Kafka's default of transactional.id.expiration.ms, longer than any job runs."""

PRUNE_EVERY = 100
"""Commits between two removals of old records. A removal costs a listing and some deletions."""


@dataclass(frozen=True)
class BucketCommitLog(CommitLog):
    """Commit log in objects `kafkalog.commits/*`."""

    directory: BucketDirectory

    prefix = COMMITS + "/"
    late_puts = True
    look_seconds = 3600
    """Far below RETENTION_SECONDS, so that a record that a slow writer would overwrite still exists."""

    def expect_put_if_absent(self) -> None:
        self.directory.before_change("probe", COMMITS)
        self.directory.store.expect_conditional_put(self.directory.path(COMMITS))

    def check_condition(self, last: LastCommit, last_record: CommitRecord) -> None:
        """Check that the store honours conditional puts: it must refuse the last record with an additional byte."""
        changed = format_record(last_record) + b"\n"
        if last.number < 0 or self.directory.put_if_absent(self.record_name(last.number), changed):
            self.expect_put_if_absent()

    def _resolve_failed_put(self, error: OSError, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Occupy the number of the record. After that the record either exists or can never be written."""
        try:
            if not self.take_number(number, previous):
                return self.read(number).id == record.id
        except (OSError, KafkalogError) as second_error:
            if isinstance(second_error, PermissionError):
                raise error from None
            raise WriteUnfinished(
                "the store stopped responding while the commit was written, so the commit may exist or not: "
                f"{error.strerror or error}",
                path=self.directory.path(),
                hint="when it responds again, check the log before you repeat the write (a stream does so by itself)",
            ) from second_error
        raise error from None

    def _files(self, after: str = "") -> Sequence[str]:
        return sorted(self.directory.list_directory(COMMITS, after).files)

    def _superseded(self, number: int) -> Sequence[str]:
        """Return the records older than RETENTION_SECONDS for every PRUNE_EVERY-th commit; none for the others."""
        if number == 0 or number % PRUNE_EVERY:
            return []
        now = self.directory.store.modified(self.directory.path(self.record_name(number)))
        records = self.directory.objects_under(COMMITS, lambda record: now - record.modified_s <= RETENTION_SECONDS)
        return [record.name for record in records]
