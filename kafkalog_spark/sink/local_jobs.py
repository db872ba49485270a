"""Jobs on a disk: names of staged files, the `.job` file of the job they belong to, and when a job is dead.

They lie in the log directory itself, as plain files: on the file system where they will end, and where every broker
looks at directories only (an unknown directory keeps Apache Kafka from starting).

    kafkalog.sink-<job>.job                  the job lives: who drives it, as JSON
    kafkalog.sink-<job>-<task>-<attempt>-<n>.log   a staged segment; .index and .timeindex at commit
    ...-<n>-joined.log                       it and small ones that follow, made at commit

A task that makes a file looks for its job's .job file afterwards. Whoever ends the job removes that first: what a late
task still makes, it removes itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.atomic_file import read_whole
from kafkalog_spark.format.names import LOG_SUFFIX
from kafkalog_spark.sink.commit_plan import PlannedSegment

_PREFIX = "kafkalog.sink-"
_JOB_SUFFIX = ".job"
_JOB_FILE = re.compile(r"kafkalog\.sink-(?P<job>[0-9a-f]{32})\.job")
_STAGED = re.compile(r"kafkalog\.sink-(?P<job>[0-9a-f]{32})-[0-9a-z-]+\.(log|index|timeindex)")

UNKNOWN_OWNER_SECONDS = 7 * 24 * 3600
"""Files of a job whose driver cannot be looked up (another machine) are left alone for as long after their last change:
Kafka's transactional.id.expiration.ms."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that can be looked up later: its id, when it started (clock ticks after boot), and where it runs."""

    boot: str
    pid_namespace: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Job:
    """Content of a .job file. owner: the process of the Spark driver, None where that is unknown. stream: of a
    streaming write, a text that is the same for each of its micro-batches and no other query's. made_directory: the
    log directory was made for this job."""

    id: str
    owner: Owner | None = None
    stream: str | None = None
    made_directory: bool = False


def job_file(job: str) -> str:
    return f"{_PREFIX}{job}{_JOB_SUFFIX}"


def staged_file(job: str, task: int, attempt: str, number: int) -> str:
    return f"{_PREFIX}{job}-{task}-{attempt}-{number}.log"


def log_file(segment: PlannedSegment) -> str:
    """The staged .log file of a segment: that of its piece, or what several are joined to."""
    name = segment.pieces[0].name
    return name if len(segment.pieces) == 1 else name.removesuffix(LOG_SUFFIX) + "-joined" + LOG_SUFFIX


def job_of(name: str) -> str | None:
    """The job that a file of a log directory belongs to; None for a file that is not staged."""
    found = _STAGED.fullmatch(name) or _JOB_FILE.fullmatch(name)
    return found["job"] if found else None


def format_job(job: Job) -> bytes:
    owner = job.owner and asdict(job.owner)
    return json.dumps({"owner": owner, "stream": job.stream, "made_directory": job.made_directory}).encode("utf-8")


def read_job(log_dir: Path, job: str) -> Job:
    """Content of its .job file; a job without known owner when that is missing or cannot be read."""
    try:
        content = json.loads(read_whole(log_dir / job_file(job)))
        owner = content["owner"]
        return Job(job, owner and Owner(**owner), content["stream"], content["made_directory"])
    except (CorruptFile, OSError, ValueError, KeyError, TypeError, RecursionError):
        return Job(job)


def jobs_in(listing: Iterable[str]) -> dict[str, list[str]]:
    """{job: its files} of a listing of a log directory."""
    jobs: dict[str, list[str]] = {}
    for name in listing:
        job = job_of(name)
        if job is not None:
            jobs.setdefault(job, []).append(name)
    return jobs


def job_lives(log_dir: Path, job: str) -> bool:
    return (log_dir / job_file(job)).exists()


def is_dead(log_dir: Path, job: Job, files: Iterable[str], now_s: float) -> bool:
    """True when nobody works on the job any more: its driver's process has ended, or cannot be looked up and nothing
    has changed for a week. A job without its .job file was ended already."""
    if not job_lives(log_dir, job.id):
        return True
    if job.owner is not None:
        found = find_process(job.owner)
        if found is not None:
            return not found
    changed = [mtime for name in files if (mtime := _mtime(log_dir / name)) is not None]
    return bool(changed) and now_s - max(changed) > UNKNOWN_OWNER_SECONDS


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def find_process(owner: Owner) -> bool | None:
    """True when the process runs; None when it is one of another machine or container, or of an earlier boot."""
    if (owner.boot, owner.pid_namespace) != _here():
        return None
    return _start_of(owner.pid) == owner.start


def driver_process() -> Owner | None:
    """The Spark driver that this Python worker belongs to: the nearest JVM above it, else this process; None where
    the system does not say (/proc)."""
    boot, namespace = _here()
    if not boot:
        return None
    chosen = os.getpid()
    for pid, name in _ancestors():
        if name == "java":
            chosen = pid
            break
    start = _start_of(chosen)
    return None if start is None else Owner(boot, namespace, chosen, start)


def _here() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """(name, the fields after it: state, parent ...) of /proc/<pid>/stat."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()


def _ancestors() -> Iterator[tuple[int, str]]:
    pid = os.getppid()
    while pid > 1:
        found = _stat(pid)
        if found is None:
            return
        yield pid, found[0]
        pid = int(found[1][1])


def _start_of(pid: int) -> int | None:
    found = _stat(pid)
    if found is None or found[1][0] in "ZX":  # it has ended, and nobody has asked how
        return None
    return int(found[1][19])  # field 22 of proc(5)
