"""Files of the sink's jobs on a disk, and whether a job's driver has ended.

Staged files are plain files in the log directory itself. So they are on the file system of their segments, and brokers
ignore them: a broker examines directories only (an unknown directory would keep Apache Kafka from starting).

    kafkalog.sink-<job>.job                        exists while the job is open: its driver, as JSON
    kafkalog.sink-<job>-<task>-<attempt>-<n>.log   a staged segment; its .index and .timeindex are made at the commit
    ...-<n>-joined.log                             this segment joined with the small ones after it, made at the commit

A task that creates a file checks afterwards whether its job's .job file exists. When a job ends, its .job file is
removed first, so that a late task finds it missing and removes its own files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format import names
from kafkalog_spark.format.regular_file import read_whole
from kafkalog_spark.sink.commit_record import PlannedSegment
from kafkalog_spark.sink.driver_process import DriverProcess, has_ended, is_visible

UNKNOWN_OWNER_SECONDS = 7 * 24 * 3600
"""How long staged files of a driver on another machine are kept after their last change. The value is the default of
Kafka's transactional.id.expiration.ms."""

_STAGED = re.compile(r"kafkalog\.sink-(?P<job>[0-9a-f]{32})(\.job|-[0-9a-z-]+\.(log|index|timeindex))")


@dataclass(frozen=True, slots=True)
class Job:
    """Content of a .job file, in which the keys are these names.

    Attributes:
        owner: The Spark driver; None if unknown.
        stream: Key of a streaming query, the same for all of its micro-batches and for no other query.
        made_directory: True if the log directory was created for this job.
    """

    owner: DriverProcess | None = None
    stream: str | None = None
    made_directory: bool = False


def job_file(job: str) -> str:
    return f"kafkalog.sink-{job}.job"


def format_job(job: Job) -> bytes:
    return json.dumps(asdict(job)).encode("utf-8")


def read_job(log_dir: Path, job: str) -> Job:
    """Return the content of a .job file; a job without an owner if the file is missing or cannot be read."""
    try:
        content = json.loads(read_whole(log_dir / job_file(job)))
        owner = None if content["owner"] is None else DriverProcess(**content["owner"])
        # The pid becomes part of a path in /proc, so it must not be a text.
        if owner is not None and not (type(owner.pid) is type(owner.start) is int):
            owner = None
        return Job(owner, content["stream"], content["made_directory"] is True)
    except (CorruptFile, OSError, ValueError, KeyError, TypeError, RecursionError):
        return Job()


def files_of_jobs(listing: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each job in a listing of the log directory."""
    jobs: dict[str, list[str]] = {}
    for name in listing:
        if match := _STAGED.fullmatch(name):
            jobs.setdefault(match["job"], []).append(name)
    return jobs


def staged_log(log_dir: Path, segment: PlannedSegment) -> Path:
    """Return the path of the segment's only piece, or of the file to which its pieces are joined."""
    first = log_dir / segment.pieces[0].name
    return first if len(segment.pieces) == 1 else first.with_name(f"{first.stem}-joined{names.LOG_SUFFIX}")


def has_driver_ended(log_dir: Path, job: str, files: Iterable[str], now_s: float) -> bool:
    """Return True if the driver of a job has ended, so that the job's files may be removed.

    A job whose .job file is gone has ended; its remaining files are left-overs. A driver on another machine, in another
    container or of an earlier boot counts as ended if none of the job's files has changed for UNKNOWN_OWNER_SECONDS.

    Args:
        log_dir: The log directory.
        job: ID of the job.
        files: Names of the job's files.
        now_s: Seconds since 1970.
    """
    if not (log_dir / job_file(job)).exists():
        return True
    owner = read_job(log_dir, job).owner
    if owner is not None and is_visible(owner):
        return has_ended(owner)
    change_times = []
    for name in files:
        with suppress(OSError):
            change_times.append((log_dir / name).stat().st_mtime)
    return bool(change_times) and now_s - max(change_times) > UNKNOWN_OWNER_SECONDS
