"""Completion of a commit whose writer died after it had put the record.

Every write does this when it begins and before it commits, because each record continues the one before it.
"""

from __future__ import annotations

import logging

from kafkalog_spark import errors
from kafkalog_spark.sink.commit_log import LastCommit, unfinished
from kafkalog_spark.sink.commit_record import CommitRecord
from kafkalog_spark.sink.write_target import WriteTarget

_log = logging.getLogger(__name__)


def finish_last(target: WriteTarget) -> tuple[LastCommit, CommitRecord]:
    """Complete the last commit if its writer left it unfinished, and return it."""
    last, last_record = target.log.last()
    if last.done or last.number < 0:
        return last, last_record
    number = last.number
    try:
        if last_record.job is not None:
            number, last_record = _roll_forward(target, number, last_record)
        target.log.mark_done(number)
        target.jobs.end_jobs([last_record.job] if last_record.job is not None else [])
    except (OSError, errors.KafkalogError) as error:
        raise unfinished(target.directory, error) from error
    return LastCommit(number, True), last_record


def _roll_forward(target: WriteTarget, number: int, record: CommitRecord) -> tuple[int, CommitRecord]:
    """Publish the rest of a commit. If its offsets have to change, put it again under the next number.

    Returns:
        The number and the record of the published commit.
    """
    try:
        remaining = target.staged.remaining(record)
        if not set(remaining.segments) <= set(record.segments):
            if not target.log.put(number + 1, remaining, record):
                raise errors.LogDirLocked("another sink committed meanwhile", path=target.directory.path())
            number, record = number + 1, remaining
        target.publisher.publish(remaining)
    except FileNotFoundError as error:
        last = target.log.look()
        if last.number > number or last.done:
            return number, record  # the commit's own writer was still running, and has completed it
        raise errors.CorruptLog(
            f"commit {number} needs a staged file that is gone",
            path=str(error.filename or target.directory.path()),
            hint=f"restore the file; or remove {target.log.record_name(number)}, which gives up the commit's records",
        ) from error
    _log.warning("%s: completed commit %d of a dead writer (job %s)", target.directory.path(), number, record.job)
    return number, record
