"""Remote segments of one partition, according to the events of `__remote_log_metadata`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from uuid import UUID

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
)
from kafkalog_spark.log.tiered.remote_log_state import apply_event
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

COPY_STARTED = RemoteSegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = RemoteSegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = RemoteSegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = RemoteSegmentState.DELETE_SEGMENT_FINISHED


@dataclass(slots=True, eq=False)
class EpochSegments:
    """Finished segments with records of one leader epoch (Kafka's `RemoteLogLeaderEpochState`).

    Attributes:
        spans: First offset of the epoch in each segment, and the segment; sorted by offset, without covered segments.
        covered: Segments whose records are all in one of the other segments.
        highest: Last copied offset of the epoch.
    """

    spans: list[tuple[int, RemoteSegment]] = field(default_factory=list)
    covered: list[RemoteSegment] = field(default_factory=list)
    highest: int = -1

    def add(self, segment: RemoteSegment, start: int, end: int) -> None:
        """Add a segment in which the epoch has the offsets [start, end]."""
        spans = self.spans[:]
        while spans and spans[-1][0] >= start and self.highest <= end:
            self.covered = [*self.covered, spans.pop()[1]]
        slot = bisect_right(spans, start, key=itemgetter(0))
        if slot and spans[slot - 1][0] == start:
            slot -= 1
            self.covered = [*self.covered, spans.pop(slot)[1]]
        spans.insert(slot, (start, segment))
        self.highest = max(self.highest, end)
        self.spans = spans

    def remove(self, segment_id: UUID) -> None:
        """Remove a segment; no-op if it is unknown."""
        slot = next((slot for slot, (_, other) in enumerate(self.spans) if other.segment_id == segment_id), None)
        if slot is None:
            self.covered = [other for other in self.covered if other.segment_id != segment_id]
            return
        self.spans = self.spans[:slot] + self.spans[slot + 1 :]

    def all(self) -> list[RemoteSegment]:
        """Return all segments, including covered ones, by start offset."""
        segments = [*(segment for _, segment in self.spans), *self.covered]
        return sorted(segments, key=lambda segment: segment.start_offset) if self.covered else segments


class RemoteLogMetadataCache:
    """Remote segments of one partition (Kafka's `RemoteLogMetadataCache`).

    Only the event loop changes it. Lists are replaced as a whole, so other threads may search them.

    Attributes:
        partition: Identity of the partition; all its segments refer to this object.
        is_deleted: True once the deletion of the partition's segments has begun.
        invalid_events: Number of events that are not a valid transition from the previous state; they change nothing.
        finished_bytes: Size of the segments whose copy is finished.
    """

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.is_deleted = False
        self.invalid_events = 0
        self.finished_bytes = 0
        self._segments: dict[UUID, SegmentEvent] = {}
        self._epochs: dict[int, EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def apply(self, event: RemoteLogEvent) -> None:
        """Apply an event of `__remote_log_metadata`."""
        if isinstance(event, PartitionDeletion):
            self.is_deleted = True
            if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self._segments = {}
                self._epochs = {}
                self.finished_bytes = 0
            return
        if isinstance(event, SegmentEvent):
            event = SegmentEvent(replace(event.segment, partition=self.partition), event.state)
        segment_id = event.segment.segment_id if isinstance(event, SegmentEvent) else event.segment_id
        before = self._segments.get(segment_id)
        after, is_invalid = apply_event(before, event)
        self.invalid_events += is_invalid
        if after is before:
            return
        if before is not None and before.state is COPY_FINISHED:
            self._remove_finished(before.segment)
        if after is None:
            del self._segments[segment_id]
            return
        self._segments[segment_id] = after
        if after.state is COPY_FINISHED:  # kafkalog-repair --from-tier writes it as a segment's first event
            self._add_finished(after.segment)

    def _remove_finished(self, segment: RemoteSegment) -> None:
        for epoch, _ in segment.leader_epochs:
            of_epoch = self._epochs[epoch]
            of_epoch.remove(segment.segment_id)
            if not (of_epoch.spans or of_epoch.covered):
                # Otherwise the highest copied offset of the epoch would remain, and its records not be copied again.
                del self._epochs[epoch]
        self.finished_bytes -= segment.size

    def _add_finished(self, segment: RemoteSegment) -> None:
        self.finished_bytes += segment.size
        epochs = segment.leader_epochs
        ends = [following.start_offset - 1 for _, following in pairwise(epochs)]
        for (epoch, start), end in zip(epochs, [*ends, segment.end_offset], strict=True):
            self._epochs.setdefault(epoch, EpochSegments()).add(segment, start, end)

    def event(self, segment_id: UUID) -> SegmentEvent | None:
        """Return the latest event of a segment, or None if it is unknown."""
        return self._segments.get(segment_id)

    def in_state(self, *states: RemoteSegmentState) -> list[RemoteSegment]:
        """Return the segments in one of these states, in no particular order."""
        return [segment for segment, state in self._segments.values() if state in states]

    @property
    def epochs(self) -> list[int]:
        """Leader epochs of finished segments, in ascending order."""
        return sorted(self._epochs)

    def of_epoch(self, epoch: int) -> Sequence[RemoteSegment]:
        """Return the finished segments with records of an epoch, by start offset; they may overlap."""
        segments = self._epochs.get(epoch)
        return () if segments is None else segments.all()

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the segment with the record at `offset` of an epoch (Kafka: `remoteLogSegmentMetadata`), or None."""
        of_epoch = self._epochs.get(epoch)
        if of_epoch is None:
            return None
        spans = of_epoch.spans
        slot = bisect_right(spans, offset, key=itemgetter(0)) - 1
        if slot < 0:
            return None
        segment = spans[slot][1]
        following = next((entry.start_offset for entry in segment.leader_epochs if entry.epoch > epoch), None)
        end = segment.end_offset if following is None else following - 1
        return segment if segment.start_offset <= offset <= end else None

    def walk(self, lineage: Sequence[EpochEntry], offset: int) -> Iterator[RemoteSegment]:
        """Yield the adjacent segments of a log with these leader epochs, from the one that contains `offset` on."""
        while True:
            slot = bisect_right(lineage, offset, key=lambda entry: entry.start_offset) - 1
            segment = self.find(lineage[slot].epoch, offset) if slot >= 0 else None
            if segment is None:
                return
            yield segment
            offset = segment.until

    def first_offset(self, lineage: Sequence[EpochEntry]) -> int | None:
        """Return the first remote offset of a log (Kafka: `findLogStartOffset`), or None without remote segments."""
        for entry in lineage:
            segments = self.of_epoch(entry.epoch)
            if segments:
                return segments[0].start_offset
        return None

    def highest_offset(self, lineage: Sequence[EpochEntry], log_end_offset: int) -> int:
        """Return the last copied offset of a log (Kafka: `findHighestRemoteOffset`), or -1 if nothing was copied."""
        end = log_end_offset
        for entry in reversed(lineage):
            of_epoch = self._epochs.get(entry.epoch)
            if of_epoch is not None:
                return min(of_epoch.highest, end - 1)
            end = entry.start_offset
        return -1
