"""Helpers for bucket sink tests: a bucket that reports its steps, writes, and the resulting objects."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.sink.bucket_commit_log import COMMITS
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_stage import STAGED
from kafkalog_spark.sink.commit_log import record_file
from kafkalog_spark.sink.committers import bucket_committer
from kafkalog_spark.sink.job_opening import recover
from kafkalog_spark.sink.task_manifest import TaskAttempt, TaskManifest
from kafkalog_spark.sink.task_writer import TaskWriter
from tests.sink.helpers.written_logs import NOW, options, rows_of
from tests.store.buckets import s3_store
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server

OnStep = Callable[[int, str, str], None]
"""Called before each change with its number from 0 on, a word for it and the name that changes."""


class Killed(BaseException):
    """Stops the writer: a BaseException that no handler of the product catches."""


@dataclass(frozen=True)
class StepBucket(BucketDirectory):
    """steps: what was done, (word, name). One partition after the other, so that the steps have an order."""

    parallel: int = 1
    on_step: OnStep = lambda number, what, name: None
    steps: list[tuple[str, str]] = field(default_factory=list, compare=False)

    def before_change(self, what: str, name: str) -> None:
        self.on_step(len(self.steps), what, name)
        self.steps.append((what, name))


def kill_at(at: int) -> OnStep:
    def on_step(number: int, what: str, name: str) -> None:
        if number == at:
            raise Killed

    return on_step


@dataclass(frozen=True)
class Place:
    """Log directory in the server's bucket, with the server's own path of it."""

    server: S3Server
    root: str

    @classmethod
    def new(cls, server: S3Server) -> Place:
        return cls(server, f"s3://tier/{uuid4().hex}/logs")

    def bucket(self, on_step: OnStep = lambda number, what, name: None, proxy: FaultProxy | None = None) -> StepBucket:
        return StepBucket(self.root, s3_store(self.server, proxy), on_step=on_step)

    @property
    def dirs(self) -> LogDirs:
        return LogDirs.open(self.root, s3_store(self.server).options)

    def names(self) -> list[str]:
        """Of all objects."""
        return [found.name for found in self.bucket().objects_under("")]

    def staged(self) -> list[str]:
        return [name for name in self.names() if name.startswith(STAGED)]

    def commits(self) -> list[str]:
        return [name for name in self.names() if name.startswith(COMMITS) and name.endswith(".json")]

    def texts(self, topic: str = "t", partition: int | None = None) -> list[str]:
        """Return the values of a topic, by partition and offset."""
        rows = rows_of(self.dirs, topic)
        return [row["value"].decode() for row in rows if partition is None or row["partition"] == partition]

    def rows(self, *topics: str) -> list[dict[str, Any]]:
        return rows_of(self.dirs, *topics)

    def copy_to(self, target: Path) -> Path:
        """What a user gets who copies the directory without what the sink keeps there (`--exclude 'kafkalog.*'`)."""
        bucket = self.bucket()
        for found in bucket.objects_under(""):
            if not found.name.startswith("kafkalog."):
                path = target / found.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bucket.read(found.name, found.size + 1))
        return target

    def put_directory(self, source: Path) -> None:
        """Copy a log directory into the bucket, as another program would."""
        bucket = self.bucket()
        for path in sorted(source.rglob("*")):
            if path.is_file():
                bucket.replace(str(path.relative_to(source)), path.read_bytes())

    def check(self, scratch: Path) -> None:
        """Check that offsets are consecutive, nothing staged is left, and a copy passes kafkalog-check."""
        next_offset: dict[tuple[str, int], int] = {}
        for row in self.rows():
            key = row["topic"], row["partition"]
            assert row["offset"] == next_offset.get(key, row["offset"]), key
            next_offset[key] = row["offset"] + 1
        assert self.staged() == []
        check_copy(self.copy_to(scratch / uuid4().hex))


def check_copy(log_dir: Path) -> None:
    """kafkalog-check --records finds nothing wrong; the copy is removed."""
    found: list[str] = []
    result = check_log_dirs([str(log_dir)], decode_records=True, on_finding=lambda finding: found.append(str(finding)))
    assert result.findings.errors == 0, found
    shutil.rmtree(log_dir)


def stage(
    bucket: BucketDirectory,
    job: str,
    *tasks: list[pa.RecordBatch] | pa.RecordBatch,
    query: str | None = None,
    batch: int | None = None,
    **given: object,
) -> list[TaskManifest]:
    """Stage the Arrow batches of tasks 0, 1, ... as those tasks do."""
    manifests = []
    for task, batches in enumerate(tasks):
        listed = batches if isinstance(batches, list) else [batches]
        record = tuple(name for name in ("key", "value", "headers", "timestamp") if name in listed[0].schema.names)
        attempt = TaskAttempt(job, task, NOW, query)
        writer = TaskWriter(bucket_committer(bucket).target, options(Path("/"), **given), record, attempt, lambda: NOW)
        manifests.append(writer.run(listed))
    return manifests


def write(
    bucket: BucketDirectory,
    *tasks: list[pa.RecordBatch] | pa.RecordBatch,
    query: str | None = None,
    batch: int = -1,
    **given: object,
) -> bool:
    """Stage and commit a write as the writer and Spark do; return True if it was not committed before."""
    committer = bucket_committer(bucket)
    recover(committer.target)
    job = uuid4().hex
    may_have_committed = False
    try:
        staged = stage(bucket, job, *tasks, query=query, batch=batch, **given)
        may_have_committed = True
        return committer.commit(job, staged, options(Path("/"), **given).segment_bytes, query, batch)
    except KafkalogError:
        committer.abort([job], may_have_committed=may_have_committed)
        raise


def record_name(number: int) -> str:
    """Of a commit, from the log directory on."""
    return f"{COMMITS}/{record_file(number)}"


@contextmanager
def killed() -> Iterator[None]:
    """The writer within is stopped, by its `on_step`."""
    try:
        yield
    except Killed:
        return
    raise AssertionError("the writer came to its end")
