"""Staged segments in a bucket: the check of their objects before the record is put, and after a writer died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from kafkalog_spark.errors import JobEnded
from kafkalog_spark.format import names
from kafkalog_spark.log.write.segment_restamping import INDEX_SUFFIXES
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_stage import STAGED
from kafkalog_spark.sink.commit_record import CommitRecord, PlannedSegment
from kafkalog_spark.sink.staged_segments import StagedSegments


@dataclass(frozen=True)
class BucketStagedSegments(StagedSegments):
    """Staged segments of a log directory in a bucket."""

    directory: BucketDirectory

    def prepare(self, record: CommitRecord) -> None:
        """Check that all pieces exist: a commit that names missing pieces could never be completed."""
        needed = {(piece.name, piece.size) for segment in record.segments for piece in segment.pieces}
        directory = f"{STAGED}/{record.job}"
        listed = self.directory.objects_under(directory) if needed else ()
        missing = needed - {(f"{directory}/{staged.name}", staged.size) for staged in listed}
        if missing:
            raise JobEnded(
                f"{len(missing)} of {len(needed)} staged objects are gone or have another size",
                path=self.directory.path(min(missing)[0]),
                hint="nothing was written; staged objects are removed after a week, or another process removed them: "
                "run the write again",
            )

    def remaining(self, record: CommitRecord) -> CommitRecord:
        created = {topic.name for topic in record.topics}

        def is_complete(segment: PlannedSegment, sizes: Mapping[str, int]) -> bool:
            stem = names.segment_name(segment.base_offset)
            has_indexes = {stem + suffix for suffix in INDEX_SUFFIXES} <= sizes.keys()
            # The indexes may be those of the empty segment that is replaced.
            return has_indexes and not segment.replaces_empty and sizes.get(stem + names.LOG_SUFFIX) == segment.size

        def incomplete(segments: list[PlannedSegment]) -> list[PlannedSegment]:
            sizes = self.directory.sizes(segments[0].directory)
            if sizes or segments[0].topic in created:
                return [segment for segment in segments if not is_complete(segment, sizes)]
            self.warn_deleted(segments)
            return []

        remaining = self.directory.run(
            [partial(incomplete, segments) for segments in record.segments_by_partition().values()]
        )
        return replace(record, segments=tuple(segment for segments in remaining for segment in segments))
