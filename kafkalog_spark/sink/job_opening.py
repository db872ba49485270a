"""Begin of a write: the check of its log directory and the job to which its staged files belong."""

from __future__ import annotations

import uuid

from kafkalog_spark.sink.commit_log import LastCommit
from kafkalog_spark.sink.directory_check import check_log_directory
from kafkalog_spark.sink.unfinished_commit import finish_last
from kafkalog_spark.sink.write_target import WriteTarget


def open_job(target: WriteTarget, stream: str | None) -> str:
    """Check the directory, complete the commit of a dead writer, begin a job and return its ID.

    Args:
        target: The log directory.
        stream: See jobs.Job.

    Raises:
        BrokerOwnsDirectory: If a broker uses the directory; on a disk only. No file was changed then.
        KafkalogError: As check_log_directory. No file was changed then.
    """
    job = uuid.uuid4().hex
    with target.directory.explained_os_errors():
        check_log_directory(target.directory)
        if target.locks is not None:
            target.locks.check_no_broker()
        if recover(target).number < 0:
            target.log.expect_put_if_absent()
        target.jobs.begin_job(job, stream)
    return job


def recover(target: WriteTarget) -> LastCommit:
    """Complete a dead writer's commit, remove the staged files of dead jobs, and return the last commit."""
    with target.directory.explained_os_errors():
        last, _ = target.log.last()  # an unreadable record is reported before any row is encoded
        if (last.done or last.number < 0) and not target.jobs.dead_jobs():
            return last
        with target.locked():
            last, _ = finish_last(target)
            target.jobs.end_jobs(target.jobs.dead_jobs())
        return last
