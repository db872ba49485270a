"""The record of a commit to a bucket, before it is put. A decision on plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalog_spark.sink.bucket_end import BucketEnd
from kafkalog_spark.sink.bucket_record import BucketRecord, BucketSegment, StagedPiece
from kafkalog_spark.sink.commit_log import new_record_id
from kafkalog_spark.sink.commit_plan import Layout, TopicPartition, place
from kafkalog_spark.sink.manifest import TaskManifest


def new_record(
    job: str,
    layout: Layout,
    ends: Mapping[TopicPartition, BucketEnd],
    tasks: Iterable[TaskManifest],
    newest: BucketRecord,
    query: str | None,
    batch: int,
) -> BucketRecord:
    """The commit of `layout`, each partition going on at its end. newest: the commit before, whose queries are kept;
    query, batch: the micro-batch that this one is."""
    sizes = {file.name: file.size for task in tasks for file in task.files}
    sources = {piece.file: piece.sources for own in layout.pieces.values() for piece in own}
    segments = []
    first = set(layout.pieces)
    for planned in place(layout.pieces, {key: end.next_offset for key, end in ends.items()}):
        key = planned.topic, planned.partition
        pieces = tuple(StagedPiece(name, sizes[name]) for name in sources[planned.file])
        end = ends[key]
        is_first = key in first
        first.discard(key)
        segments.append(
            BucketSegment(
                *key,
                planned.base_offset,
                planned.records,
                sum(piece.size for piece in pieces),
                end.leader_epoch,
                pieces,
                end.epochs if is_first else None,
                end.replaces_empty and is_first,
            )
        )
    queries = dict(newest.queries) if query is None else {**newest.queries, query: batch}
    return BucketRecord(new_record_id(), job, queries, layout.topics, tuple(segments))
