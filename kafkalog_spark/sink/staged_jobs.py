"""Interface of the open jobs of a log directory and their staged files, implemented for a disk and for a bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from kafkalog_spark.sink.log_directory import LogDirectory


class StagedJobs(ABC):
    """Jobs of a log directory: their begin, and the removal of their staged files. All methods raise OSError."""

    directory: LogDirectory

    def begin_job(self, job: str, stream: str | None) -> None:  # noqa: B027
        """Record that the job is open, so that its files do not count as those of a dead job. stream: see jobs.Job."""

    @abstractmethod
    def staged(self, job: str) -> list[str]:
        """Return the names of the job's staged files."""

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        """Return the jobs to end after a micro-batch.

        They are the job of the writer that committed or aborted the micro-batch, which staged no file itself, and jobs
        of the same stream whose tasks did not report to any commit or abort.
        """
        return []

    def dead_jobs(self) -> list[str]:
        """Return the jobs whose driver has certainly ended."""
        return []

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove the jobs' staged files."""
        for job in jobs:
            self.directory.delete(self.staged(job))

    @abstractmethod
    def sweep(self, job: str) -> None:
        """Remove the staged files of the job and of dead jobs."""
