"""Where a write goes: a log directory of this machine, or one in a bucket (bucket_place). What a write does there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafkalog_spark.log.store.urls import is_local
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.manifest import TaskManifest
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.stage import LocalStage, Stage
from kafkalog_spark.sink.target import check_no_broker, check_target, one_directory, unwritable

_LOG_DIR_MODE = 0o777  # as umask allows; what Kafka's Files.createDirectories does


class Committing(Protocol):
    """The end of writes: see Committer."""

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool: ...

    def abort(self, job: str) -> None: ...

    def abort_all(self, jobs: Iterable[str]) -> None: ...

    def end_stream(self, stream: str) -> None: ...


class WritePlace(Protocol):
    """A log directory that is written to. Small and picklable."""

    def open_job(self, stream: str | None) -> str:
        """Check the directory, finish what a dead writer left, and begin a job; its id. stream: see staging.Job.

        Raises NotALogDirectory, BrokerOwnsDirectory, UnsupportedFormat, CorruptFile; then nothing has changed.
        """

    def exists(self) -> bool:
        """Whether the directory is there: where it is not, no job of it is either."""

    def stage(self, job: str) -> Stage:
        """Where a task of the job puts its files."""

    def committer(self) -> Committing: ...


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
            log_dir.mkdir(_LOG_DIR_MODE, parents=True, exist_ok=True)
            if not made:
                Committer(log_dir).recover()
            described = staging.Job(job, staging.driver_process(), stream, made)
            (log_dir / staging.job_file(job)).write_bytes(staging.format_job(described))
        except OSError as error:
            raise unwritable(log_dir, error) from error
        return job

    def exists(self) -> bool:
        """See WritePlace."""
        return self.log_dir.exists()

    def stage(self, job: str) -> Stage:
        """See WritePlace."""
        return LocalStage(self.log_dir, job)

    def committer(self) -> Committing:
        """See WritePlace."""
        return Committer(self.log_dir)


def place_of(options: WriteOptions) -> WritePlace:
    """Where `path` is. Raises OptionError."""
    assert options.path is not None
    if is_local(options.path):
        return LocalPlace(one_directory(options.path))
    from kafkalog_spark.sink.bucket_place import BucketPlace

    return BucketPlace(options.path, options.storage)
