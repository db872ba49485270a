"""What a task is given, and what it hands to the commit: small, whatever was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished .log file in the log directory, under its staging name. Its offsets are given at the commit."""

    name: str
    topic: str
    partition: int
    size: int
    records: int


@dataclass(frozen=True)
class TaskPlace:
    """Which task attempt of which job this is. made_ms: when the write began, the time of LogAppendTime records.
    query, batch: of a stream."""

    job: str
    task: int
    made_ms: int
    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class TaskManifest(WriterCommitMessage):  # type: ignore[misc]
    """One task attempt's work.

    job: of the writer. task: Spark's partition id, by which records are ordered. files: in the order of the records of
    each partition. partitions: of each topic used, how many partitions it was taken to have. query, batch: of a stream,
    the id that survives its restarts and the number of the micro-batch.
    """

    job: str
    task: int
    files: tuple[StagedFile, ...]
    partitions: Mapping[str, int] = field(default_factory=dict)
    query: str | None = None
    batch: int | None = None
