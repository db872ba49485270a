"""Spark's entry to writing files: the batch writer and the writer of micro-batches.

Spark makes a writer on the driver for each write, and for each micro-batch, and pickles it into the tasks. A batch's
writer is pickled for commit and abort, too; a stream's is made again there, and knows its job from the tasks' messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.sink.columns import Encoders, SinkColumns, sink_columns
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.commit_plan import TaskManifest, TaskPlace
from kafkalog_spark.sink.medium import Medium
from kafkalog_spark.sink.medium_bucket import Bucket
from kafkalog_spark.sink.medium_local import LocalMedium
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.spark.errors import first_line
from kafkalog_spark.spark.types import StreamWriterBase, arrow_schema
from kafkalog_spark.spark.worker_process import settle
from kafkalog_spark.store.interface import is_local
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option

# Spark's names for what a task knows of its query: StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class SinkTarget:
    """Log directory that is written to. Small and picklable. path: absolute, or normalised in a bucket."""

    path: str
    storage: StorageOptions

    @classmethod
    def of(cls, options: WriteOptions) -> SinkTarget:
        """Raises OptionError for a path that cannot be made absolute."""
        assert options.path is not None
        try:
            path = os.path.abspath(options.path) if is_local(options.path) else options.path
        except OSError as error:
            raise OptionError(f"option 'path': {error}") from error
        return cls(path, options.storage)

    @property
    def medium(self) -> Medium:
        return LocalMedium(Path(self.path)) if is_local(self.path) else Bucket.at(self.path, self.storage)

    @property
    def committer(self) -> Committer:
        return Committer(self.medium)


@dataclass(frozen=True)
class WriteJob:
    """A write, as it was opened on the driver. Small and picklable."""

    id: str
    options: WriteOptions
    columns: SinkColumns
    target: SinkTarget
    made_ms: int

    @classmethod
    def open(cls, options: WriteOptions, schema: StructType, stream: str | None = None) -> WriteJob:
        """Check columns and directory, finish what a dead writer left, and make the job known in the directory.

        Raises OptionError, NotALogDirectory, BrokerOwnsDirectory, UnsupportedFormat, CorruptFile; then nothing has
        changed.
        """
        columns = sink_columns(schema, options.topic, [column.name for column in options.encoded])
        check_formats(options, columns, schema)
        target = SinkTarget.of(options)
        return cls(target.committer.open_job(stream), options, columns, target, time.time_ns() // 1_000_000)

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskManifest:
        """In a task: stage its rows."""
        from kafkalog_spark.sink.task_writer import TaskWriter  # the kernels are loaded in tasks, and nowhere else

        settle()
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        own = TaskPlace(self.id, task, self.made_ms, query, None if batch is None else int(batch))
        wanted = [*self.columns.record]
        wanted += ["topic"] if self.columns.topic else []
        wanted += ["partition"] if self.columns.partition else []
        writer = TaskWriter(self.target.medium.stage(self.id), self.options, self.columns.record, own)
        return writer.run(batch.select(wanted) for batch in encoded_batches(self.options, self.columns, batches))


def encoders(options: WriteOptions, columns: SinkColumns, schema: pa.Schema) -> Encoders | None:
    """Encoders of values and keys for rows with that schema; None where they are written as they are. Raises
    OptionError."""
    return Encoders(options.encoded, columns.packed, schema) if options.encoded else None


def check_formats(options: WriteOptions, columns: SinkColumns, schema: StructType) -> None:
    """Raises OptionError for what a format does not write."""
    if options.encoded:
        encoders(options, columns, arrow_schema(schema))


def encoded_batches(
    options: WriteOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Batches with values and keys encoded. Raises InvalidRecord."""
    if not options.encoded:
        yield from batches
        return
    first = next(batches, None)
    if first is None:
        return
    rows = chain([first], batches)
    made = encoders(options, columns, first.schema)
    yield from rows if made is None else made.applied(rows)


def _manifests(messages: list[WriterCommitMessage | None]) -> list[TaskManifest]:
    return [message for message in messages if isinstance(message, TaskManifest)]


class KafkaLogBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """df.write.format("kafkalog").mode("append").save(directory): all rows or none."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._job = WriteJob.open(options, schema)

    @first_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._job.write(iterator)

    @first_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        job = self._job
        job.target.committer.commit(job.id, _manifests(messages), job.options.segment_bytes)

    @first_line
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.target.committer.abort([self._job.id], tried=None not in messages)


class KafkaLogStreamWriter(StreamWriterBase):  # type: ignore[misc]
    """stream.writeStream.format("kafkalog").start(directory): each micro-batch once.

    A micro-batch is known by the query's id, which is in the checkpoint and survives restarts, and its number.
    """

    def __init__(self, options: WriteOptions, schema: StructType, given: Mapping[str, str]) -> None:
        self._stream = _stream_key(options, given)
        self._job = WriteJob.open(options, schema, self._stream)

    @first_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._job.write(iterator)

    @first_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = _manifests(messages)
        jobs = {(task.job, task.query) for task in tasks}
        if len(jobs) > 1:
            raise KafkalogError(f"the tasks of micro-batch {batchId} are of several writes: {sorted(map(str, jobs))}")
        for job, query in jobs:
            if query is None:
                raise KafkalogError(f"Spark gave the tasks no query id ({_QUERY_ID}), so nothing can be written once")
            self._job.target.committer.commit(job, tasks, self._job.options.segment_bytes, query, batchId)
        self._job.target.committer.end(self._job.id, self._stream)

    @first_line
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        jobs = sorted({task.job for task in _manifests(messages)})
        self._job.target.committer.abort(jobs, tried=None not in messages)
        self._job.target.committer.end(self._job.id, self._stream)


def _stream_key(options: WriteOptions, given: Mapping[str, str]) -> str | None:
    """The same for all micro-batches and starts of a query, and no other query's: its checkpoint is its own.

    None when the checkpoint is not named by an option (spark.sql.streaming.checkpointLocation): two queries may have
    the same options then. What killed tasks of a failed micro-batch staged stays there until the driver ends.
    """
    if options.checkpoint_location is None:
        return None
    # without credentials: they may be others tomorrow
    kept = sorted((name, text) for name, text in given.items() if not is_storage_option(name))
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()
