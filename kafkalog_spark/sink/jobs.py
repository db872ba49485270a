"""Jobs of the sink on a disk: the staged files of a write, its driver, and whether that driver has ended.

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
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format import names
from kafkalog_spark.format.regular_file import read_whole
from kafkalog_spark.sink.commit_record import PlannedSegment

_STAGED = re.compile(r"kafkalog\.sink-(?P<job>[0-9a-f]{32})(\.job|-[0-9a-z-]+\.(log|index|timeindex))")

UNKNOWN_OWNER_SECONDS = 7 * 24 * 3600
"""How long staged files of a driver on another machine stay after their last change: Kafka's default of
transactional.id.expiration.ms."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a driver process, with which another process finds out later whether the driver has ended.

    Attributes:
        boot: ID of the boot of the machine.
        pid_namespace: PID namespace, which differs between containers.
        pid: Process ID.
        start: Start time in clock ticks after the boot.
    """

    boot: str
    pid_namespace: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Job:
    """Content of a .job file.

    Attributes:
        owner: The Spark driver; None if unknown.
        stream: Key of a streaming query, the same for all of its micro-batches and for no other query.
        made_directory: True if the log directory was created for this job.
    """

    owner: Owner | None = None
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
        owner = None if content["owner"] is None else Owner(**content["owner"])
        if owner is not None and not (type(owner.pid) is type(owner.start) is int):  # they go into a path in /proc
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


def is_dead(log_dir: Path, job: str, files: Iterable[str], now_s: float) -> bool:
    """Return True if the driver has ended.

    A driver on another machine, in another container or of an earlier boot counts as ended if none of the job's files
    has changed for UNKNOWN_OWNER_SECONDS. A job without a .job file was ended already.
    """
    if not (log_dir / job_file(job)).exists():
        return True
    owner = read_job(log_dir, job).owner
    if owner is not None and (owner.boot, owner.pid_namespace) == _boot_and_namespace():
        process = _process(owner.pid)
        return process is None or process.start != owner.start
    changed = []
    for name in files:
        with suppress(OSError):
            changed.append((log_dir / name).stat().st_mtime)
    return bool(changed) and now_s - max(changed) > UNKNOWN_OWNER_SECONDS


def driver_process() -> Owner | None:
    """Return the Spark driver of this worker: the nearest JVM among its ancestors, else this process.

    None if the system has no /proc.
    """
    driver, pid = os.getpid(), os.getppid()
    while pid > 1 and (process := _process(pid)) is not None:
        if process.name == "java":
            driver = pid
            break
        pid = process.parent
    (boot, namespace), process = _boot_and_namespace(), _process(driver)
    return None if not boot or process is None else Owner(boot, namespace, driver, process.start)


def _boot_and_namespace() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


class _Process(NamedTuple):
    name: str
    parent: int
    start: int  # clock ticks after boot


def _process(pid: int) -> _Process | None:
    """Read /proc/<pid>/stat (proc(5)); None if the process has ended, or the system has no /proc.

    Raises OSError for any other failure, such as a lack of file descriptors: the process may be alive, and its staged
    files must stay.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *more = rest.split()
    if state in "ZX":  # Z: ended, but its parent has not waited for it
        return None
    return _Process(name, int(parent), int(more[17]))
