"""Remote segments of a partition derived from its metadata events, as in Kafka's RemoteLogMetadataCache."""

from __future__ import annotations

import uuid

from kafkalog_broker.remote.remote_log_metadata_cache import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    RemoteLogMetadataCache,
)
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

PARTITION = TopicIdPartition("orders", uuid.UUID(int=7), 0)


def segment(start: int, end: int, *epochs: tuple[int, int], number: int | None = None) -> RemoteSegment:
    entries = tuple(EpochEntry(*entry) for entry in epochs or ((0, start),))
    segment_id = uuid.UUID(int=start * 1000 + end if number is None else number)
    return RemoteSegment(PARTITION, segment_id, start, end, entries, 100, end, 1, 0)


def update(of: RemoteSegment, state: RemoteSegmentState) -> SegmentUpdate:
    return SegmentUpdate(PARTITION, of.segment_id, 1, 5, b"custom", state)


def cache_of(*segments: RemoteSegment) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache(PARTITION)
    for one in segments:
        cache.apply(SegmentEvent(one, COPY_STARTED))
        cache.apply(update(one, COPY_FINISHED))
    return cache


def test_remote_segment_is_found_from_copy_finished_until_delete_started() -> None:
    one = segment(10, 19)
    cache = RemoteLogMetadataCache(PARTITION)
    cache.apply(SegmentEvent(one, COPY_STARTED))
    assert cache.find(0, 12) is None
    assert cache.in_state(COPY_STARTED) == [one]
    cache.apply(update(one, COPY_FINISHED))
    found = cache.find(0, 12)
    assert found is not None
    assert (found.segment_id, found.custom_metadata, found.event_timestamp) == (one.segment_id, b"custom", 5)
    assert [cache.find(0, offset) is None for offset in (9, 10, 19, 20)] == [True, False, False, True]
    assert cache.find(1, 12) is None
    assert cache.finished_bytes == 100
    cache.apply(update(one, DELETE_STARTED))
    assert cache.find(0, 12) is None
    assert cache.finished_bytes == 0
    assert len(cache.in_state(DELETE_STARTED)) == 1
    cache.apply(update(one, DELETE_FINISHED))
    assert (len(cache), cache.invalid_events) == (0, 0)


def test_event_out_of_order_is_counted_as_invalid_and_changes_nothing() -> None:
    one = segment(10, 19)
    cache = cache_of(one)
    cache.apply(update(one, COPY_STARTED))
    cache.apply(update(one, DELETE_FINISHED))
    cache.apply(update(segment(50, 59), DELETE_STARTED))
    cache.apply(update(segment(50, 59), DELETE_FINISHED))  # said again of one that is gone
    cache.apply(update(one, COPY_FINISHED))
    cache.apply(SegmentEvent(one, COPY_STARTED))
    assert cache.invalid_events == 4
    assert cache.find(0, 12) is not None


def test_walk_uses_a_later_copy_for_segments_within_it_and_ends_at_a_gap() -> None:
    cache = cache_of(segment(0, 99), segment(100, 149), segment(100, 199), segment(300, 399))
    lineage = [EpochEntry(0, 0)]
    assert [(s.start_offset, s.end_offset) for s in cache.walk(lineage, 0)] == [(0, 99), (100, 199)]
    assert [(s.start_offset, s.end_offset) for s in cache.walk(lineage, 350)] == [(300, 399)]
    assert len(cache.of_epoch(0)) == 4  # those that are covered are deleted by retention too
    assert (cache.first_offset(lineage), cache.highest_offset(lineage, 500)) == (0, 399)
    assert cache.highest_offset(lineage, 350) == 349


def test_remote_segment_with_several_epochs_is_found_in_a_matching_lineage_only() -> None:
    cache = cache_of(segment(0, 99, (0, 0), (2, 60)), segment(100, 199, (2, 100), (3, 150)))
    lineage = [EpochEntry(0, 0), EpochEntry(2, 60), EpochEntry(3, 150)]
    assert cache.find(0, 60) is None
    assert [s.start_offset for s in cache.walk(lineage, 30)] == [0, 100]
    assert cache.epochs == [0, 2, 3]
    assert cache.highest_offset(lineage, 1000) == 199
    # of another lineage, where epoch 2 began elsewhere and wrote the rest, only what epoch 0 wrote is there
    other = [EpochEntry(0, 0), EpochEntry(1, 40)]
    assert [s.start_offset for s in cache.walk(other, 30)] == [0]
    assert cache.highest_offset(other, 90) == 39


def test_deleted_partition_has_no_segments_after_deletion_finished() -> None:
    cache = cache_of(segment(0, 99))
    cache.apply(PartitionDeletion(PARTITION, 1, 0, PartitionDeleteState.DELETE_PARTITION_MARKED))
    assert cache.is_deleted
    assert len(cache) == 1
    cache.apply(PartitionDeletion(PARTITION, 1, 0, PartitionDeleteState.DELETE_PARTITION_FINISHED))
    assert len(cache) == cache.finished_bytes == 0


def test_log_without_leader_epochs_has_no_highest_copied_offset() -> None:
    """A power cut during topic creation leaves such a log; it must not fail the start."""
    assert cache_of(segment(0, 9)).highest_offset((), 0) == -1
    assert RemoteLogMetadataCache(PARTITION).highest_offset((), 0) == -1
