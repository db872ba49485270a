"""Helpers for sink tests: write without Spark and inspect the log directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import names
from kafkalog_spark.format.offset_index import check_offset_index
from kafkalog_spark.format.time_index import check_time_index
from kafkalog_spark.log.decode.record_schema import HEADERS_TYPE
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.sink import jobs
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.commit_record import CommitRecord
from kafkalog_spark.sink.committers import local_committer
from kafkalog_spark.sink.driver_process import find_driver
from kafkalog_spark.sink.job_opening import recover
from kafkalog_spark.sink.local_commit_log import LocalCommitLog
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.option_parsing import parse_write_options
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.task_manifest import TaskAttempt, TaskManifest
from kafkalog_spark.sink.task_writer import TaskWriter

START = 1_700_000_000_000
NOW = START + 86_400_000

OnStep = Callable[[str, Path], None]

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
    "timestamp": pa.timestamp("us", tz="UTC"),
    "topic": pa.string(),
    "partition": pa.int32(),
}


def table(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return rows as Spark passes them; the first row determines the columns. `timestamp` is in ms."""
    rows = list(rows)
    columns = list(rows[0]) if rows else ["value"]
    arrays = {}
    for name in columns:
        cells = [row[name] for row in rows]
        if name == "timestamp":
            arrays[name] = pa.array([None if ms is None else ms * 1000 for ms in cells], pa.int64()).cast(TYPES[name])
        else:
            arrays[name] = pa.array(cells, TYPES[name])
    return pa.record_batch(arrays)


def values(*texts: object, **more: Any) -> pa.RecordBatch:
    """Return rows with these values; `more` holds further columns of every row."""
    return table({"value": str(text).encode(), **more} for text in texts)


def options(log_dir: Path, **given: object) -> WriteOptions:
    """Return options by name, with _ replaced by the dots of Kafka's names."""
    text = {name.replace("_", "."): str(value) for name, value in given.items()}
    return parse_write_options({"path": str(log_dir), **text})


@dataclass(frozen=True)
class StepDirectory(LocalDirectory):
    """on_step: called before each change. It may fail, or end the process."""

    on_step: OnStep | None = None

    def before_change(self, what: str, name: Path) -> None:
        if self.on_step is not None:
            self.on_step(what, name)


def committer(log_dir: Path, on_step: OnStep | None = None, now_s: Callable[[], float] = time.time) -> Committer:
    return local_committer(StepDirectory(log_dir, on_step), now_s, wait_s=5)


def last_record(log_dir: Path) -> CommitRecord:
    """Return the newest record of the commit log."""
    return LocalCommitLog(LocalDirectory(log_dir)).last()[1]


def is_complete(log_dir: Path) -> bool:
    """Return True if every commit has been completed."""
    look = LocalCommitLog(LocalDirectory(log_dir)).look()
    return look.done or look.number < 0


def open_job(log_dir: Path, stream: str | None = None) -> str:
    """Open a job in the log directory, owned by this process."""
    job = uuid4().hex
    log_dir.mkdir(parents=True, exist_ok=True)
    described = jobs.Job(find_driver(), stream)
    (log_dir / jobs.job_file(job)).write_bytes(jobs.format_job(described))
    return job


def stage(
    log_dir: Path,
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
        writer = TaskWriter(
            local_committer(LocalDirectory(log_dir)).target, options(log_dir, **given), record, attempt, lambda: NOW
        )
        manifests.append(writer.run(listed))
    return manifests


def write(
    log_dir: Path,
    *tasks: list[pa.RecordBatch] | pa.RecordBatch,
    query: str | None = None,
    batch: int = -1,
    on_step: OnStep | None = None,
    **given: object,
) -> bool:
    """Stage and commit a write as the writer and Spark do; return True if it was not committed before."""
    writer = committer(log_dir, on_step)
    if log_dir.exists():
        recover(writer.target)
    job = open_job(log_dir)
    try:
        staged = stage(log_dir, job, *tasks, query=query, batch=batch, **given)
        return writer.commit(job, staged, options(log_dir, **given).segment_bytes, query, batch)
    except KafkalogError:
        writer.abort([job])
        raise


def read(log_dir: Path, *topics: str) -> list[dict[str, Any]]:
    """Return all records by topic, partition and offset; `timestamp` is in ms."""
    return rows_of(LogDirs.open(log_dir), *topics)


def rows_of(dirs: LogDirs, *topics: str) -> list[dict[str, Any]]:
    """Return the records of opened log directories, as `read` does."""
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    rows = []
    for topic in topics or sorted(dirs.topics):
        for found in dirs.scan(topic, columns=columns):
            at = found.schema.get_field_index("timestamp")
            found = found.set_column(at, "timestamp", pa.compute.floor_temporal(found["timestamp"], unit="millisecond"))
            for row in found.to_pylist():
                row["timestamp"] = int(row["timestamp"].timestamp() * 1000 + 0.5)
                rows.append(row)
    return rows


def texts(log_dir: Path, topic: str = "t", partition: int | None = None) -> list[str]:
    """Return the values of a topic, by partition and offset."""
    return [row["value"].decode() for row in read(log_dir, topic) if partition is None or row["partition"] == partition]


def check_log(log_dir: Path) -> None:
    """Check that offsets are consecutive in every partition, indexes are sorted, and nothing staged is left."""
    next_offset: dict[tuple[str, int], int] = {}
    for row in read(log_dir):
        key = row["topic"], row["partition"]
        expected = next_offset.get(key, row["offset"])
        assert row["offset"] == expected, f"{key}: offset {row['offset']} follows {expected - 1}"
        next_offset[key] = row["offset"] + 1
    for path in log_dir.glob("*-*/*" + names.OFFSET_INDEX_SUFFIX):
        check_offset_index(path.read_bytes(), int(path.stem))
        assert path.with_suffix(names.LOG_SUFFIX).exists()
        check_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX).read_bytes(), int(path.stem))
    assert staged_files(log_dir) == []


def staged_files(log_dir: Path) -> list[str]:
    return sorted(name for files in jobs.files_of_jobs(os.listdir(log_dir)).values() for name in files)


def everything(log_dir: Path) -> dict[str, bytes]:
    """Return the bytes of every file below the log directory, by relative path; empty bytes for directories."""
    return {
        str(path.relative_to(log_dir)): path.read_bytes() if path.is_file() else b""
        for path in sorted(log_dir.rglob("*"))
    }
