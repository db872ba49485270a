"""Spark's writers of segment files, for batches and for micro-batches.

A job owns the staged files of one write (`jobs.py`). Each writer opens a job when Spark constructs it on the driver.
Spark pickles the writer into the tasks, which stage their files for its job. A commit or an abort ends the job:

- A batch is committed or aborted by the writer that was pickled, so its job is that of the tasks.
- A micro-batch is committed or aborted by a second writer, which Spark constructs for this purpose. The job of the
  tasks is in their messages, and the second writer's own job has no tasks. Both jobs are ended.
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

_QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property of a task with the ID of its streaming query (StreamExecution.QUERY_ID_KEY)."""


class _SegmentFileWriter:
    """Base class of the writers. Opens a job on the driver, and writes rows in tasks. Small when pickled."""

    def __init__(self, options: WriteOptions, schema: StructType, stream_key: str | None = None) -> None:
        """Check the columns, and open a job.

        Args:
            options: Options of the write.
            schema: Schema of the rows.
            stream_key: Key of the streaming query (`_stream_key`); None for a batch.

        Raises:
            OptionError: If a column or an option is invalid.
            KafkalogError: As `open_job`.
        """
        self.options = options
        self.columns = sink_columns(schema, options.topic, options.formats)
        assert options.path is not None
        self.committer = committer_of(options.path, options.storage)
        self.job = open_job(self.committer.target, stream_key)
        self.begun_ms = time.time_ns() // 1_000_000

    @shorten_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task as files of the job. Spark calls this in the task, with the pickled writer.

        Returns:
            The TaskManifest, which names the files and the job. Spark passes it to `commit` or `abort`.
        """
        from kafkalog_spark.sink.task_writer import TaskWriter  # only tasks load the kernels

        freeze_gc_once()
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(_QUERY_ID_PROPERTY) if context is not None else None
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

    A micro-batch is identified by its number and the query's ID, which is in the checkpoint and survives restarts.
    """

    def __init__(self, options: WriteOptions, schema: StructType, options_as_given: Mapping[str, str]) -> None:
        self._stream_key = _stream_key(options, options_as_given)
        super().__init__(options, schema, self._stream_key)

    @shorten_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = _manifests(messages)
        jobs_and_queries = {(task.attempt.job, task.attempt.query) for task in tasks}
        if len(jobs_and_queries) > 1:
            described = sorted(f"job {job} of query {query}" for job, query in jobs_and_queries)
            raise KafkalogError(f"the tasks of micro-batch {batchId} belong to several writes: {', '.join(described)}")
        for job, query in jobs_and_queries:  # one, or none if the micro-batch had no tasks
            if query is None:
                raise KafkalogError(
                    f"Spark gave the tasks no query ID ({_QUERY_ID_PROPERTY}), without which a micro-batch cannot be "
                    "written exactly once"
                )
            self.committer.commit(job, tasks, self.options.segment_bytes, query, batchId)
        self._end_unused_jobs()

    @shorten_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        jobs = sorted({task.attempt.job for task in _manifests(messages)})
        self.committer.abort(jobs, may_have_committed=_all_tasks_succeeded(messages))
        self._end_unused_jobs()

    def _end_unused_jobs(self) -> None:
        """End this writer's own job, which no task used, and jobs of the same stream whose tasks were killed."""
        self.committer.end_unused_jobs(self.job, self._stream_key)


def _manifests(messages: list[WriterCommitMessage | None]) -> list[TaskManifest]:
    return [message for message in messages if isinstance(message, TaskManifest)]


def _all_tasks_succeeded(messages: list[WriterCommitMessage | None]) -> bool:
    """Return True if every task has sent a message. Spark may then have tried to commit before it aborts.

    If a task has failed, Spark aborts without having tried to commit.
    """
    return None not in messages


def _stream_key(options: WriteOptions, options_as_given: Mapping[str, str]) -> str | None:
    """Return a key that is the same for all micro-batches and starts of a query, and differs between queries.

    The key is a hash of the options. They identify the query if they include a checkpoint location, because no two
    queries share one. Storage options are left out, as credentials may change.

    Returns:
        The key. None without a checkpoint location, because two queries may have the same options then. The staged
        files of killed tasks are then removed only after the driver has ended.
    """
    if options.checkpoint_location is None:
        return None
    identifying = sorted((name, text) for name, text in options_as_given.items() if not is_storage_option(name))
    return hashlib.sha256(json.dumps(identifying).encode()).hexdigest()
