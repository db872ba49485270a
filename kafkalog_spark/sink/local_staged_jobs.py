"""Jobs on a disk: .job files beside the staged files (jobs), and the removal of both."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from kafkalog_spark.format import fsync
from kafkalog_spark.format.regular_file import descriptor, write_all
from kafkalog_spark.sink.driver_process import find_driver
from kafkalog_spark.sink.jobs import Job, files_of_jobs, format_job, has_driver_ended, job_file, read_job
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.staged_jobs import StagedJobs

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalStagedJobs(StagedJobs):
    """Jobs of a log directory on a disk.

    Attributes:
        now_s: Returns seconds since 1970.
    """

    directory: LocalDirectory
    now_s: Callable[[], float] = time.time

    def begin_job(self, job: str, stream: str | None) -> None:
        makes_directory = not self.directory.log_dir.exists()
        fsync.make_directories(self.directory.log_dir)
        content = format_job(Job(find_driver(), stream, makes_directory))
        with descriptor(self.directory.log_dir / job_file(job), os.O_WRONLY | os.O_CREAT) as file:
            write_all(file, content)

    def staged(self, job: str) -> list[str]:
        return files_of_jobs(self.directory.names_in_root()).get(job, [])

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        if stream is None:
            return [job]
        others = files_of_jobs(self.directory.names_in_root()).keys() - {job}
        return [job, *(other for other in others if read_job(self.directory.log_dir, other).stream == stream)]

    def dead_jobs(self) -> list[str]:
        now, files_by_job = self.now_s(), files_of_jobs(self.directory.names_in_root())
        return [job for job, files in files_by_job.items() if has_driver_ended(self.directory.log_dir, job, files, now)]

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove the .job file first, then the staged files, then an empty log directory that was made for the job."""
        for job in jobs:
            made_directory = read_job(self.directory.log_dir, job).made_directory
            self.directory.delete([job_file(job)])
            self.directory.delete(self.staged(job))
            if made_directory:
                with suppress(OSError):  # another writer has begun to use it
                    self.directory.log_dir.rmdir()

    def sweep(self, job: str) -> None:
        self.end_jobs([job])
        for dead in self.dead_jobs():
            _log.warning(
                "%s: removed the staged files of a writer that has ended (job %s)", self.directory.log_dir, dead
            )
            self.end_jobs([dead])
