"""Where a write goes: a log directory of this machine, or one in a bucket (bucket_place). What a write does there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafkalog_spark.format.atomic_file import DIRECTORY_MODE, descriptor, write_all
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.bucket import COMMITS, Bucket
from kafkalog_spark.sink.bucket_commit import BucketCommitter
from kafkalog_spark.sink.bucket_target import BucketStage, check_bucket
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.local_target import check_no_broker, check_target, one_directory, unwritable
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.stage import LocalStage, Stage
from kafkalog_spark.sink.staging import TaskManifest
from kafkalog_spark.store.interface import is_local
from kafkalog_spark.store.storage_options import StorageOptions


class WritePlace(Protocol):
    """A log directory that is written to. Small and picklable."""

    def open_job(self, stream: str | None) -> str:
        """Check the directory, finish what a dead writer left, and begin a job; its id. stream: see staging.Job.

        Raises NotALogDirectory, BrokerOwnsDirectory, UnsupportedFormat, CorruptFile; then nothing has changed.
        """

    def stage(self, job: str) -> Stage:
        """Where a task of the job puts its files."""

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """See Committer.commit."""

    def abort(self, jobs: Sequence[str], *, tried: bool) -> None:
        """Remove what the jobs staged, unless one was decided: then finish it. tried: a commit of them may have begun.
        Raises OSError, WriteUnfinished."""

    def end(self, job: str, stream: str | None) -> None:
        """After a micro-batch: remove the job of the writer that committed or aborted it, which staged nothing, and
        what jobs of the same stream left that no task could report."""


@dataclass(frozen=True)
class LocalPlace:
    """A log directory of this machine."""

    log_dir: Path

    def open_job(self, stream: str | None) -> str:
        """See WritePlace."""
        log_dir = self.log_dir
        check_target(log_dir)
        check_no_broker(log_dir)
        job = staging.new_job_id()
        try:
            made = not log_dir.exists()
            log_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            if not made:
                Committer(log_dir).recover()
            described = staging.Job(job, staging.driver_process(), stream, made)
            with descriptor(log_dir / staging.job_file(job), os.O_WRONLY | os.O_CREAT) as file:
                write_all(file, staging.format_job(described))
        except OSError as error:
            raise unwritable(log_dir, error) from error
        return job

    def stage(self, job: str) -> Stage:
        """See WritePlace."""
        return LocalStage(self.log_dir, job)

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """See WritePlace."""
        return Committer(self.log_dir).commit(job, tasks, segment_bytes, query, batch)

    def abort(self, jobs: Sequence[str], *, tried: bool) -> None:
        """See WritePlace."""
        Committer(self.log_dir).abort_all(jobs)

    def end(self, job: str, stream: str | None) -> None:
        """See WritePlace."""
        if not self.log_dir.exists():
            return
        Committer(self.log_dir).abort(job)
        if stream is not None and self.log_dir.exists():
            Committer(self.log_dir).end_stream(stream)


def place_of(options: WriteOptions) -> WritePlace:
    """Where `path` is. Raises OptionError."""
    assert options.path is not None
    if is_local(options.path):
        return LocalPlace(one_directory(options.path))

    return BucketPlace(options.path, options.storage)


# A log directory in a bucket, as a write meets it.


@dataclass(frozen=True)
class BucketPlace:
    """See WritePlace. path: normalised."""

    path: str
    storage: StorageOptions

    @property
    def _bucket(self) -> Bucket:
        return Bucket.at(self.path, self.storage)

    def open_job(self, stream: str | None) -> str:
        """See WritePlace. No object says that the job lives: what it leaves is known by its age. Raises
        NotALogDirectory also for a store without conditional puts, before any row is encoded."""
        bucket = self._bucket
        try:
            check_bucket(bucket)
            if BucketCommitter(bucket).recover().number < 0:
                bucket.expect_conditional_put(COMMITS)
        except OSError as error:
            raise bucket.unwritable(error) from error
        return staging.new_job_id()

    def stage(self, job: str) -> BucketStage:
        """See WritePlace."""
        return BucketStage(self._bucket, job)

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """See WritePlace."""
        return BucketCommitter(self._bucket).commit(job, tasks, segment_bytes, query, batch)

    def abort(self, jobs: Sequence[str], *, tried: bool) -> None:
        """See WritePlace."""
        BucketCommitter(self._bucket).abort(jobs, tried=tried)

    def end(self, job: str, stream: str | None) -> None:
        """See WritePlace. What killed tasks staged is removed when it is a week old: another process may be at work on
        the same micro-batch, and what it staged is needed until then."""
