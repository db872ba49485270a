"""State of the remote segments of all partitions, built from the events of `__remote_log_metadata`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

NEXT_STATES = {
    RemoteSegmentState.COPY_SEGMENT_STARTED: {
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
        RemoteSegmentState.DELETE_SEGMENT_STARTED,  # the copy failed
    },
    RemoteSegmentState.COPY_SEGMENT_FINISHED: {RemoteSegmentState.DELETE_SEGMENT_STARTED},
    RemoteSegmentState.DELETE_SEGMENT_STARTED: {RemoteSegmentState.DELETE_SEGMENT_FINISHED},
    RemoteSegmentState.DELETE_SEGMENT_FINISHED: set(),
}
"""Valid next states of each state. A repeated state is valid, too (RemoteLogSegmentState.isValidTransition)."""


@dataclass(frozen=True)
class SegmentStates:
    """IDs and metadata of the remote segments of a partition.

    Attributes:
        readable: Segments whose copy is finished, by ID.
        refused: IDs of all other segments: the copy is not finished, or the segment was deleted or is being deleted.
    """

    readable: Mapping[uuid.UUID, RemoteSegment]
    refused: frozenset[uuid.UUID]


class RemoteLogState:
    """State of all remote segments, built from events.

    The events of one partition must be applied in offset order.

    Args:
        events: The first events to apply.

    Attributes:
        segments: Metadata and state of each segment that is not deleted, by partition and segment ID.
        deleted_segments: IDs of deleted segments.
        deleted_partitions: Partitions whose remote log was deleted or is being deleted.
        invalid_transitions: Number of events with an invalid state transition. They are ignored, as in Kafka.
    """

    def __init__(self, events: Iterable[RemoteLogEvent] = ()) -> None:
        self.segments: dict[tuple[TopicIdPartition, uuid.UUID], SegmentEvent] = {}
        self.deleted_segments: dict[TopicIdPartition, set[uuid.UUID]] = {}
        self.deleted_partitions: dict[TopicIdPartition, PartitionDeleteState] = {}
        self.invalid_transitions = 0
        for event in events:
            self.apply(event)

    def apply(self, event: RemoteLogEvent) -> None:
        """Apply the next event."""
        if isinstance(event, PartitionDeletion):
            self.deleted_partitions[event.partition] = event.state
            return
        segment = event.segment if isinstance(event, SegmentEvent) else event
        if event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            self.deleted_segments.setdefault(segment.partition, set()).add(segment.segment_id)
        key = (segment.partition, segment.segment_id)
        after, is_invalid = apply_event(self.segments.get(key), event)
        self.invalid_transitions += is_invalid
        if after is not None:
            self.segments[key] = after
        else:
            self.segments.pop(key, None)

    def by_partition(self) -> dict[TopicIdPartition, SegmentStates]:
        """Return the segments of each partition that has events about segments."""
        readable: dict[TopicIdPartition, dict[uuid.UUID, RemoteSegment]] = {}
        refused = {partition: set(ids) for partition, ids in self.deleted_segments.items()}
        for (partition, segment_id), (segment, state) in self.segments.items():
            if state is RemoteSegmentState.COPY_SEGMENT_FINISHED and partition not in self.deleted_partitions:
                readable.setdefault(partition, {})[segment_id] = segment
            else:
                refused.setdefault(partition, set()).add(segment_id)
        return {
            partition: SegmentStates(readable.get(partition, {}), frozenset(refused.get(partition, ())))
            for partition in readable.keys() | refused.keys()
        }


def apply_event(before: SegmentEvent | None, event: SegmentEvent | SegmentUpdate) -> tuple[SegmentEvent | None, bool]:
    """Apply an event to the state of its segment.

    Args:
        before: State of the segment before the event, or None if the segment is unknown or deleted.
        event: The event.

    Returns:
        The state of the segment after the event, or None if the segment is unknown or deleted. The second value is True
        if the event is an invalid transition and was ignored.
    """
    if isinstance(event, SegmentEvent):
        return before or event, before is not None and before.state is not event.state
    if before is None or (event.state is not before.state and event.state not in NEXT_STATES[before.state]):
        # DELETE_SEGMENT_FINISHED of an unknown segment is valid: the event is repeated, or retention removed the
        # earlier events of the segment.
        return before, before is not None or event.state is not RemoteSegmentState.DELETE_SEGMENT_FINISHED
    if event.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
        return None, False
    # Broker, time and custom metadata are those of the last event (RemoteLogSegmentMetadata.createWithUpdates).
    segment = replace(
        before.segment, broker_id=event.broker_id, event_timestamp=event.event_timestamp,
        custom_metadata=event.custom_metadata,
    )  # fmt: skip
    return SegmentEvent(segment, event.state), False
