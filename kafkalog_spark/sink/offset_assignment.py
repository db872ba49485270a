"""Offsets of the segments of a commit, from the ends of the logs. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.sink.commit_record import PlannedSegment
from kafkalog_spark.sink.partition_end import PartitionEnd


def assign_offsets(
    segments: Iterable[PlannedSegment], ends: Mapping[TopicPartition, PartitionEnd]
) -> tuple[PlannedSegment, ...]:
    """Return the segments with offsets, one after the other from the end of each partition's log."""
    ends = dict(ends)
    assigned = []
    for segment in segments:
        end = ends[segment.key]
        segment = replace(
            segment,
            base_offset=end.next_offset,
            leader_epoch=end.leader_epoch,
            epochs=end.epochs,
            replaces_empty=end.replaces_empty,
        )
        assigned.append(segment)
        ends[segment.key] = PartitionEnd(segment.next_offset, end.leader_epoch, None)
    return tuple(assigned)
