"""Staged segments on a disk: their pieces are joined and get their offsets and indexes before the record is put.

Offsets are assigned only after all of the log below them is on disk (log_recovery), so that the recovery points which
a commit writes at its end are true.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import names, regular_file
from kafkalog_spark.format.regular_file import descriptor, write_all
from kafkalog_spark.log.write.segment_restamping import INDEX_SUFFIXES, restamp_segment
from kafkalog_spark.sink.commit_record import CommitRecord, PlannedSegment
from kafkalog_spark.sink.jobs import staged_log
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.local_log_ends import LocalLogEnds
from kafkalog_spark.sink.offset_assignment import assign_offsets
from kafkalog_spark.sink.staged_segments import StagedSegments


@dataclass(frozen=True)
class LocalStagedSegments(StagedSegments):
    """Staged segments in a log directory on a disk."""

    directory: LocalDirectory

    def prepare(self, record: CommitRecord) -> None:
        self._stamp(record.segments, join=True)
        self.directory.fsync_directory(self.directory.log_dir)

    def _stamp(self, segments: Iterable[PlannedSegment], *, join: bool) -> None:
        """Write the offsets and the indexes of staged segments, and flush them. join: join their pieces first."""

        def stamped() -> Iterator[Path]:
            for segment in segments:
                log = staged_log(self.directory.log_dir, segment)
                if join and len(segment.pieces) > 1:
                    self.directory.before_change("join", log)
                    with descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as out:
                        for piece in segment.pieces:
                            write_all(out, regular_file.read_whole(self.directory.log_dir / piece.name))
                self.directory.before_change("restamp", log)
                end = restamp_segment(log, segment.base_offset, segment.leader_epoch)
                if end != segment.next_offset:
                    raise errors.KafkalogError(
                        f"a staged file has {end - segment.base_offset} records, but its task wrote {segment.records}",
                        path=str(log),
                        hint="another process changed the file; nothing was written, run the write again",
                    )
                yield from (log, *(log.with_suffix(suffix) for suffix in INDEX_SUFFIXES))

        self.directory.flush(stamped())  # a file is flushed while the next one gets its offsets

    def remaining(self, record: CommitRecord) -> CommitRecord:
        """Return the segments whose staged .log still exists. They follow records that a broker has written since."""
        existing = self.directory.topics()
        unmoved = [segment for segment in record.segments if staged_log(self.directory.log_dir, segment).exists()]
        # All topics are made before the first segment moves. Once a segment has moved, a missing topic was deleted.
        topics = record.topics if len(unmoved) == len(record.segments) else ()
        present = {(topic, partition) for topic, partitions in existing.items() for partition in partitions}
        moved = [segment for segment in record.segments if segment not in unmoved]
        self._finish_moves([segment for segment in moved if segment.key in present])
        created = {topic.name for topic in topics}
        present |= {segment.key for segment in unmoved if segment.topic in created}
        for segment in unmoved:
            if segment.key not in present:
                self.warn_deleted([segment])
        kept = [segment for segment in unmoved if segment.key in present]
        # The commit is not complete, so an empty record is passed: nothing of it is known to be on disk.
        ends = LocalLogEnds(self.directory).find({segment.key for segment in kept}, existing, CommitRecord())
        assigned = assign_offsets(kept, ends)
        self._stamp(assigned, join=False)  # a broker may have removed indexes; offsets may have changed
        return CommitRecord(job=record.job, queries=record.queries, topics=topics, segments=assigned)

    def _finish_moves(self, segments: Iterable[PlannedSegment]) -> None:
        """Move the indexes of segments whose .log has been moved already."""
        for segment in segments:
            staged = staged_log(self.directory.log_dir, segment)
            target = self.directory.log_dir / segment.file(names.LOG_SUFFIX)
            for suffix in INDEX_SUFFIXES:
                if staged.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                    self.directory.rename(staged.with_suffix(suffix), target.with_suffix(suffix))
        self.directory.flush(sorted({self.directory.log_dir / segment.directory for segment in segments}))
