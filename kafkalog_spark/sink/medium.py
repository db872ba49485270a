"""Interfaces between the commit protocol and where a log directory lies: a disk (medium_local), a bucket
(medium_bucket).

Names are paths from the log directory on. On both, commits are named by number: see commit_log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kafkalog_spark.errors import CorruptLog, KafkalogError, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.names import parse_segment_file
from kafkalog_spark.sink.commit_plan import CommitRecord, NewTopic, PartitionEnd, PlannedSegment, TopicPartition

_RECORD = re.compile(r"([0-9]{20})\.json")

INDEX_SUFFIXES = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


def record_file(number: int) -> str:
    """Name of the record of commit `number`, without Medium.commits. Of -1 an empty one, which sorts before all."""
    return f"{number:020d}.json" if number >= 0 else ""


def record_number(file: str) -> int | None:
    """The reverse; None for another name."""
    found = _RECORD.fullmatch(file)
    return int(found[1]) if found else None


def segment_file(segment: PlannedSegment, suffix: str) -> str:
    """Name of a segment's file, from the log directory on."""
    return f"{segment.directory}/{names.segment_name(segment.base_offset)}{suffix}"


def check_no_segments(listing: Iterable[str], path: str, parent: str) -> None:
    """Raise NotALogDirectory for the listing of a partition's directory."""
    if any(parse_segment_file(name) is not None for name in listing):
        raise NotALogDirectory(
            "holds segment files: it is the directory of one partition",
            path=path,
            hint=f"give its parent {parent}, and name topic and partition as columns or options",
        )


def segment_in_the_way(segment: PlannedSegment, path: str, hint: str) -> CorruptLog:
    """Error for a segment of somebody else at the offset of a planned one."""
    return CorruptLog(
        f"there is a segment where offset {segment.base_offset} was to be written",
        topic_partition=segment.directory,
        path=path,
        hint=hint,
    )


class Stage(Protocol):
    """Staged files of one task attempt. All methods but `error` raise OSError."""

    held_bytes: int
    """Most bytes of all files that are begun and not finished: a task finishes some when there are more."""

    def file_bytes(self, segment_bytes: int) -> int:
        """Bytes of the largest file, for segments of that size."""

    def topics(self) -> dict[str, list[int]]:
        """{topic: its partitions that lie in the log directory, sorted}."""

    def begin(self, task: int, attempt: str, number: int) -> str:
        """Begin a file; its name, for all other calls. Raises JobEnded."""

    def append(self, name: str, data: memoryview) -> None:
        """Write at its end. `data` is free for others on return."""

    def finish(self, name: str) -> None:
        """Nothing follows."""

    def close(self) -> None:
        """Wait for what is under way: finished files are there on return."""

    def discard(self) -> None:
        """Remove all of it, also after an error."""

    def error(self, error: OSError) -> KafkalogError:
        """Error to raise for an OSError."""


class Medium(Protocol):
    """Log directory that is written to, with the primitives of a commit. All methods raise OSError."""

    @property
    def commits(self) -> str:
        """Prefix of the names of commit records."""

    @property
    def remote(self) -> bool:
        """True where nothing is locked, a request may come through after its answer was given up, and the store may
        ignore conditions."""

    @property
    def join_bytes(self) -> int | None:
        """Staged files up to this size are joined to one segment; None: up to that of a segment."""

    def path(self, name: str = "") -> str:
        """Full path, for messages."""

    def unwritable(self, error: OSError) -> KafkalogError:
        """Error to raise for an OSError."""

    # ---- the directory and jobs

    def check_target(self) -> None:
        """Raise unless the directory is a log directory, or empty, or missing. Changes nothing.

        NotALogDirectory, UnsupportedFormat, CorruptFile; BrokerOwnsDirectory on a disk.
        """

    def locked(self) -> AbstractContextManager[None]:
        """Locks of the directory against brokers and other sinks, where there are any. Raises LogDirLocked,
        BrokerOwnsDirectory."""

    def make_directory(self) -> bool:
        """True when it was made just now, so that nothing can be left in it."""

    def begin_job(self, job: str, stream: str | None, *, made_directory: bool) -> None:
        """Make the job known, where that is how a living one is told from a dead one. stream: see local_jobs.Job."""

    def stage(self, job: str) -> Stage:
        """Staging area of a task of the job."""

    def staged(self, job: str) -> list[str]:
        """Names of what the job left."""

    def jobs_of_stream(self, job: str, stream: str | None) -> list[str]:
        """Jobs to be ended after a micro-batch: that of the writer that committed or aborted it, which staged nothing,
        and those of the same stream that no task could report."""

    def dead_jobs(self) -> list[str]:
        """Jobs that nobody works on any more, as far as one look can tell."""

    def end_jobs(self, jobs: Iterable[str]) -> None:
        """Remove what the jobs left."""

    def sweep(self, job: str) -> None:
        """Remove what the job and dead jobs left."""

    # ---- commit records

    def commit_files(self, after: str = "") -> list[str]:
        """Names that begin with `commits`, without that, from `after` on."""

    def read(self, name: str, most: int) -> bytes:
        """Raises FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Put if absent, on disk on return; False when there is one."""

    def replace_hint(self, name: str, data: bytes) -> None:
        """Replace a file whose content may be lost."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove files that may have gone already."""

    def expect_put_if_absent(self) -> None:
        """Raise where the store overwrites what `create` must leave."""

    def superseded(self, number: int) -> list[str]:
        """Commit files that nobody needs after commit `number`."""

    # ---- segments

    def topics(self) -> dict[str, list[int]]:
        """{topic: its partitions, sorted}, of live partition directories."""

    def ends(
        self, keys: Iterable[TopicPartition], existing: Mapping[str, list[int]], newest: CommitRecord
    ) -> dict[TopicPartition, PartitionEnd]:
        """Append position of each partition, recovered first where the medium can. newest: the last commit."""

    def prepare(self, record: CommitRecord) -> None:
        """Last step before a record is put: everything it needs is there, and on disk."""

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Work of a decided commit that a dead writer left, ready to be published; with other offsets where somebody
        appended meanwhile."""

    def each(self, work: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """Do all of (bytes that it moves, work)."""

    def make_topic(self, topic: NewTopic, filled: Sequence[int]) -> None:
        """Directories of all its partitions. filled: those that get segments next."""

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file, on disk on return."""

    def publish_segment(self, segment: PlannedSegment) -> None:
        """Bring a segment to its place: so that a reader meets a whole log at any instant, and doing it again goes on.
        Raises CorruptLog when another segment is there."""

    def end_publish(self, record: CommitRecord) -> None:
        """After all segments: make sure that they are on disk."""
