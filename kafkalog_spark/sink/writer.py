"""Spark's writers of segment files, for batches and for micro-batches.

Spark makes a writer on the driver for each write or micro-batch and pickles it into the tasks. For commit and abort of
a batch it reuses the pickled writer. For a stream it constructs a new one. That one opens a job of its own, takes the
tasks' job from their messages, and ends both.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.sink.columns import sink_columns
from kafkalog_spark.sink.committers import committer_of
from kafkalog_spark.sink.job_opening import open_job
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.task_manifest import TaskAttempt, TaskManifest
from kafkalog_spark.spark.release_differences import StreamWriterBase
from kafkalog_spark.spark.shortened_errors import shorten_errors
from kafkalog_spark.spark.worker_process import freeze_gc_once
from kafkalog_spark.store.storage_options import is_storage_option

_QUERY_ID = "sql.streaming.queryId"
"""Local property with the id of the streaming query (StreamExecution.QUERY_ID_KEY)."""


class _SegmentFileWriter:
    """Base class of the writers. Opens a job on the driver, and writes rows in tasks. Small when pickled."""

    def __init__(self, options: WriteOptions, schema: StructType, stream: str | None = None) -> None:
        """Check the columns, and open a job. Raises OptionError and what `open_job` raises."""
        self.options = options
        self.columns = sink_columns(schema, options.topic, options.formats)
        assert options.path is not None
        self.committer = committer_of(options.path, options.storage)
        self.job = open_job(self.committer.target, stream)
        self.begun_ms = time.time_ns() // 1_000_000

    @shorten_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from kafkalog_spark.sink.task_writer import TaskWriter  # only tasks load the kernels

        freeze_gc_once()
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        attempt = TaskAttempt(self.job, task, self.begun_ms, query)
        writer = TaskWriter(self.committer.target, self.options, self.columns.record, attempt)
        return writer.run(self.columns.rows(iterator))


class KafkaLogBatchWriter(_SegmentFileWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """df.write.format("kafkalog").mode("append").save(directory): all rows or none."""

    @shorten_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.committer.commit(self.job, _manifests(messages), self.options.segment_bytes)

    @shorten_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.committer.abort([self.job], may_have_committed=_all_tasks_succeeded(messages))


class KafkaLogStreamWriter(_SegmentFileWriter, StreamWriterBase):  # type: ignore[misc]
    """stream.writeStream.format("kafkalog").start(directory): each micro-batch exactly once.

    A micro-batch is identified by its number and the query's id, which is in the checkpoint and survives restarts.
    """

    def __init__(self, options: WriteOptions, schema: StructType, options_as_given: Mapping[str, str]) -> None:
        self._stream = _stream_key(options, options_as_given)
        super().__init__(options, schema, self._stream)

    @shorten_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = _manifests(messages)
        writes = {(task.attempt.job, task.attempt.query) for task in tasks}
        if len(writes) > 1:
            raise KafkalogError(
                f"the tasks of micro-batch {batchId} belong to several writes: {sorted(map(str, writes))}"
            )
        if writes:
            ((job, query),) = writes
            if query is None:
                raise KafkalogError(
                    f"Spark gave the tasks no query ID ({_QUERY_ID}), without which a micro-batch cannot be written "
                    "exactly once"
                )
            self.committer.commit(job, tasks, self.options.segment_bytes, query, batchId)
        self._end_other_jobs()

    @shorten_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        jobs = sorted({task.attempt.job for task in _manifests(messages)})
        self.committer.abort(jobs, may_have_committed=_all_tasks_succeeded(messages))
        self._end_other_jobs()

    def _end_other_jobs(self) -> None:
        """End the job of this writer, to which no task belongs, and the jobs of killed tasks of the same stream."""
        self.committer.end_other_jobs(self.job, self._stream)


def _manifests(messages: list[WriterCommitMessage | None]) -> list[TaskManifest]:
    return [message for message in messages if isinstance(message, TaskManifest)]


def _all_tasks_succeeded(messages: list[WriterCommitMessage | None]) -> bool:
    """Return True if no task failed. Otherwise Spark aborts a write without having tried to commit it."""
    return None not in messages


def _stream_key(options: WriteOptions, options_as_given: Mapping[str, str]) -> str | None:
    """Return a key that is the same for all micro-batches and starts of a query, and differs between queries.

    No two queries share a checkpoint location, so options that include one identify the query. Without it two queries
    may have the same options, and the key is None: staged files of killed tasks are then removed only after the driver
    has ended.
    """
    if options.checkpoint_location is None:
        return None
    # without storage options: credentials may change
    kept = sorted((name, text) for name, text in options_as_given.items() if not is_storage_option(name))
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()
