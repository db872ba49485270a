"""What a real Kafka 4.3.0 with tiered storage wrote, against what its own tools and consumers said of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog_spark.format.checkpoint import EpochEntry, parse_leader_epochs
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted, parse_transaction_index
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.lineage import ExclusionReason, newest_segment, without_empty_epochs
from kafkalog_spark.log.tiered.lineage_merge import (
    LineageMerge,
    LogPiece,
    SkipReason,
    latest_topic_id,
    merge_lineage,
)
from kafkalog_spark.log.tiered.manifest import INDEX_FIELDS, parse_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, RemoteObjects, remote_key
from kafkalog_spark.log.tiered.remote_log_events import RemoteSegmentState, SegmentEvent, SegmentUpdate, decode_event
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from tests.log.helpers.plain_decoder import Batch, decode_batches, decode_log
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode, objects_below, original_bytes, write_tree
from tests.log.tiered.golden_tiered import CLEAN, CLUSTERS, KILLED, LEADERS, GoldenCluster

clusters = pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
partitions = pytest.mark.parametrize(
    ("cluster", "topic", "partition"),
    [(cluster, *place) for cluster in CLUSTERS for place in cluster.partitions()],
    ids=lambda value: value.name if isinstance(value, GoldenCluster) else str(value),
)


def objects_of(cluster: GoldenCluster) -> dict[str, RemoteObjects]:
    """Name of a segment's files -> its objects."""
    found = objects_below(cluster.remote, Layout.LOCAL_TIERED)
    return {f"{part.start_offset:020d}-{uuid_to_text(part.segment_id)}": part for part in found}


def content(cluster: GoldenCluster, segment: RemoteSegment, file: RemoteFile) -> bytes:
    return (cluster.remote / remote_key(Layout.LOCAL_TIERED, segment, file)).read_bytes()


def remote_segments(cluster: GoldenCluster, topic: str, partition: int) -> list[RemoteSegment]:
    """Of all topics of that name."""
    return [
        segment
        for where, segments in cluster.readable().items()
        if (where.topic, where.partition) == (topic, partition)
        for segment in segments
    ]


@clusters
def test_events_equal_those_of_kafkas_formatter(cluster: GoldenCluster) -> None:
    formatted = cluster.formatted_events()
    values = cluster.event_values()
    assert values.keys() <= formatted.keys()  # after the copy was taken the killed cluster was started again
    assert values.keys() == formatted.keys() or cluster is KILLED
    for place, value in values.items():
        said, event = formatted[place], decode_event(value)
        where = event.segment.partition if isinstance(event, SegmentEvent) else event.partition
        assert where.topic == said["topic"]
        assert (uuid_to_text(where.topic_id), where.partition) == (said["topic_id"], int(said["number"]))
        assert event.state.name == said["state"]
        if isinstance(event, SegmentEvent):
            segment = event.segment
            assert said["kind"] == "RemoteLogSegmentMetadata"
            assert uuid_to_text(segment.segment_id) == said["id"]
            assert [tuple(entry) for entry in segment.leader_epochs] == said["epochs"]
            for name, number in (
                ("startOffset", segment.start_offset),
                ("endOffset", segment.end_offset),
                ("brokerId", segment.broker_id),
                ("maxTimestampMs", segment.max_timestamp),
                ("eventTimestampMs", segment.event_timestamp),
                ("segmentSizeInBytes", segment.size),
            ):
                assert number == int(said[name])
            assert str(segment.transaction_index_empty).lower() == said["txnIdxEmpty"]
        else:
            assert (event.event_timestamp, event.broker_id) == (int(said["eventTimestampMs"]), int(said["brokerId"]))
            assert isinstance(event, SegmentUpdate)
            assert (said["kind"], uuid_to_text(event.segment_id)) == ("RemoteLogSegmentMetadataUpdate", said["id"])


def test_golden_events_include_all_kinds_and_states() -> None:
    events = [decode_event(value) for value in CLEAN.event_values().values()]
    assert {type(event) for event in events} == {SegmentEvent, SegmentUpdate}  # Kafka 4.3 writes no other
    assert {event.state for event in events} == set(RemoteSegmentState)
    assert {event.segment.transaction_index_empty for event in events if isinstance(event, SegmentEvent)} == {
        True,
        False,
    }


@clusters
def test_golden_events_are_valid_state_transitions(cluster: GoldenCluster) -> None:
    assert cluster.state().invalid_transitions == 0


@clusters
def test_golden_keys_match_the_layout(cluster: GoldenCluster) -> None:
    keys = [key for key, _ in cluster.listing()]
    assert sum(len(objects.objects) for objects in objects_of(cluster).values()) == len(keys)


@clusters
def test_readable_segments_are_complete_with_the_recorded_size(cluster: GoldenCluster) -> None:
    objects = objects_of(cluster)
    named = set()
    for segments in cluster.readable().values():
        for segment in segments:
            found = objects[segment.name]
            named.add(segment.name)
            assert found.missing_files == frozenset()
            assert found.partition == segment.partition
            log = remote_key(Layout.LOCAL_TIERED, segment, RemoteFile.LOG)
            assert found.objects[RemoteFile.LOG] == log
            assert (cluster.remote / log).stat().st_size == segment.size
            assert (RemoteFile.TRANSACTION_INDEX in found.objects) is not segment.transaction_index_empty
            batches = decode_log(cluster.remote / log)
            assert batches[0].base_offset >= segment.start_offset
            assert batches[-1].last_offset <= segment.end_offset
    not_readable = {name: found for name, found in objects.items() if name not in named}
    assert all(found.missing_files for found in not_readable.values())
    assert bool(not_readable) is (cluster is KILLED)


def test_incomplete_copy_is_not_readable() -> None:
    (unfinished,) = [found for found in objects_of(KILLED).values() if found.missing_files]
    assert RemoteFile.PRODUCER_SNAPSHOT in unfinished.missing_files  # the last file
    key = (unfinished.partition, unfinished.segment_id)
    assert KILLED.state().segments[key].state is RemoteSegmentState.COPY_SEGMENT_STARTED
    assert unfinished.segment_id not in {part.segment_id for part in remote_segments(KILLED, "killed", 0)}


def local_batches(cluster: GoldenCluster, topic: str, partition: int) -> list[Batch]:
    logs = sorted((cluster.data / f"{topic}-{partition}").glob("*.log"))
    return [batch for log in logs for batch in decode_log(log)]


def walked_batches(
    cluster: GoldenCluster, topic: str, partition: int, walk: LineageMerge
) -> Iterator[tuple[LogPiece, Batch]]:
    """The batches of each piece that have offsets in it, by the tests' own decoder."""
    local = local_batches(cluster, topic, partition)
    for piece in walk.pieces:
        if piece.source is None:
            batches = local
        else:
            batches = list(decode_batches(content(cluster, piece.source, RemoteFile.LOG)))
        for batch in batches:
            if batch.base_offset < piece.until and batch.last_offset >= piece.start:
                yield piece, batch


def walk_of(cluster: GoldenCluster, topic: str, partition: int) -> LineageMerge:
    spans = cluster.local_spans(topic, partition)
    return merge_lineage(
        remote_segments(cluster, topic, partition),
        without_empty_epochs(cluster.leader_epochs(topic, partition)),
        local=spans,
        topic_id=cluster.topic_id(topic, partition),
        log_start=cluster.log_start(topic, partition),
        log_end=spans[-1].until,
    )


@partitions
def test_local_and_remote_segments_hold_the_consumers_records(
    cluster: GoldenCluster, topic: str, partition: int
) -> None:
    walk = walk_of(cluster, topic, partition)
    said, rows = cluster.said(topic, partition), cluster.records(topic, partition)
    assert walk.holes == ()
    if said["records"] == 0:
        assert walk.pieces == ()
        return
    assert (walk.pieces[0].start, walk.pieces[-1].until) == (said["log_start_offset"], said["high_watermark"])
    found = [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for piece, batch in walked_batches(cluster, topic, partition, walk)
        if not batch.is_control
        for record in batch.records
        if piece.start <= record.offset < piece.until
    ]
    assert found == [(row["offset"], row["timestamp"], row["key"], row["value"], row["headers"]) for row in rows]


def aborted_by_index(walk: LineageMerge, piece: LogPiece, upper: int) -> list[AbortedTransaction]:
    """Aborted transactions of a remote piece: its own index, then those that follow, local ones last, until enough."""
    found: list[AbortedTransaction] = []
    local = sorted((CLEAN.data / "transactions-0").glob("*.txnindex"))
    indexes = [
        (source.start_offset, content(CLEAN, source, RemoteFile.TRANSACTION_INDEX))
        for source in (follower.source for follower in walk.pieces[walk.pieces.index(piece) :])
        if source is not None and not source.transaction_index_empty
    ]
    indexes += [(int(path.name[:20]), path.read_bytes()) for path in local]
    for base_offset, data in indexes:
        search = collect_aborted(parse_transaction_index(data, base_offset), piece.start, upper)
        found += search.transactions
        if search.is_complete:
            break
    return found


def test_remote_transaction_indexes_list_the_aborted_transactions() -> None:
    walk = walk_of(CLEAN, "transactions", 0)
    committed = {row["offset"] for row in CLEAN.records("transactions", 0) if row["committed"]}
    checked = hidden = 0
    for piece in walk.pieces:
        if piece.source is None:
            continue
        aborted = aborted_by_index(walk, piece, piece.until)
        for batch in decode_batches(content(CLEAN, piece.source, RemoteFile.LOG)):
            if batch.is_control:
                continue
            hides = batch.is_transactional and any(
                one.producer_id == batch.producer_id and one.first_offset <= batch.base_offset <= one.last_offset
                for one in aborted
            )
            hidden += hides
            for record in batch.records:
                assert (record.offset in committed) is not hides
                checked += 1
    assert checked > 1000
    assert hidden > 50
    assert walk.pieces[-1].source is None  # what follows the open transaction is local only
    spans = [piece for piece in walk.pieces if piece.source and not piece.source.transaction_index_empty]
    assert len(spans) > 3


def test_recreated_topic_is_read_by_its_id() -> None:
    segments = remote_segments(CLEAN, "recreated", 0)
    ids = {segment.partition.topic_id for segment in segments}
    living = CLEAN.topic_id("recreated", 0)
    assert len({objects.partition.topic_id for objects in objects_of(CLEAN).values()
                if objects.partition.topic == "recreated"}) == 2  # fmt: skip
    assert latest_topic_id(segments) == living
    assert living in ids
    left = {part.reason for part in walk_of(CLEAN, "recreated", 0).excluded}
    assert left <= {SkipReason.OTHER_TOPIC_ID}


def test_deleted_records_are_clipped_within_a_segment() -> None:
    walk = walk_of(CLEAN, "deleted-prefix", 0)
    first = walk.pieces[0]
    assert first.source is not None
    assert first.source.start_offset < first.start < first.source.end_offset
    # the checkpoint of the leader epochs alone says it too
    epochs = without_empty_epochs(CLEAN.leader_epochs("deleted-prefix", 0))
    alone = merge_lineage(remote_segments(CLEAN, "deleted-prefix", 0), epochs)
    assert alone.pieces[0].start == walk.pieces[0].start


def test_local_segments_are_preferred() -> None:
    walk = walk_of(CLEAN, "overlap", 0)
    assert [piece.source for piece in walk.pieces] == [None]
    assert {left.reason for left in walk.excluded} == {SkipReason.LOCAL}
    assert len(walk.excluded) >= 3


def test_segments_of_alternating_leaders_are_one_log() -> None:
    """Kafka 4.3 went on where the leader before it had come to; overlaps are in test_lineage_merge."""
    segments = remote_segments(LEADERS, "leaders", 0)
    assert len(LEADERS.leader_epochs("leaders", 0)) >= 4
    assert {entry.epoch for segment in segments for entry in segment.leader_epochs} >= {0, 1, 2, 3}
    assert sum(len(segment.leader_epochs) > 1 for segment in segments) >= 3
    walk = walk_of(LEADERS, "leaders", 0)
    assert [piece.source for piece in walk.pieces if piece.source] == segments
    stale = [
        EpochEntry(entry.epoch, entry.start_offset + (entry.epoch > 1)) for entry in LEADERS.leader_epochs("leaders", 0)
    ]
    reasons = {left.reason for left in merge_lineage(segments, stale).excluded}  # as after an unclean election
    assert reasons <= {
        ExclusionReason.OTHER_NEXT_EPOCH,
        ExclusionReason.BEGINS_BEFORE_EPOCH,
        ExclusionReason.ENDS_AFTER_EPOCH,
    }
    assert ExclusionReason.OTHER_NEXT_EPOCH in reasons


def test_deleted_topic_has_no_segment() -> None:
    states = {
        event.state
        for event in map(decode_event, CLEAN.event_values().values())
        if isinstance(event, SegmentUpdate) and event.partition.topic == "gone"
    }
    assert RemoteSegmentState.DELETE_SEGMENT_FINISHED in states
    assert "gone" not in {where.topic for where, _ in CLEAN.state().segments}


@partitions
def test_lineage_is_the_leader_epochs_of_the_newest_segment(cluster: GoldenCluster, topic: str, partition: int) -> None:
    """Without the log directory: what is remote is found again from what is remote."""
    topic_id = cluster.topic_id(topic, partition)
    segments = [part for part in remote_segments(cluster, topic, partition) if part.partition.topic_id == topic_id]
    last = newest_segment(segments)
    if last is None:
        assert topic == "empty"
        return
    lineage = without_empty_epochs(parse_leader_epochs(content(cluster, last, RemoteFile.LEADER_EPOCHS)))
    walk = merge_lineage(segments, lineage)
    assert walk.holes == ()
    assert [piece.source for piece in walk.pieces] == segments
    assert walk.pieces[-1].until == last.until


@pytest.mark.parametrize("mode", AivenMode)
@pytest.mark.parametrize("chunk_size", [700, 4096, 1 << 20])
def test_segments_in_aivens_layout_equal_the_local_tiered_ones(
    mode: AivenMode, chunk_size: int, tmp_path: Path
) -> None:
    segments = remote_segments(CLEAN, "transactions", 0)[:4] + remote_segments(CLEAN, "codecs", 0)[:2]
    write_tree(CLEAN.remote, segments, tmp_path, mode, chunk_size, "some/prefix-")
    found = {part.segment_id: part for part in objects_below(tmp_path, Layout.AIVEN, "some/prefix-")}
    ring = KeyRing({KEY_ID: (KEYS / "one.pem").read_text()})
    for segment in segments:
        objects = found[segment.segment_id]
        assert objects.missing_files == frozenset()
        assert TopicIdPartition(*objects.partition) == segment.partition
        manifest = parse_manifest((tmp_path / objects.objects[RemoteFile.MANIFEST]).read_bytes())
        assert manifest.segment is not None
        assert manifest.segment.name == segment.name
        assert manifest.segment.leader_epochs == segment.leader_epochs
        codec = ChunkCodec.of(manifest, ring)
        stored = (tmp_path / objects.objects[RemoteFile.LOG]).read_bytes()
        assert manifest.chunks.object_size == len(stored)
        log = original_bytes(codec, manifest.chunks, stored, 0, manifest.chunks.original_file_size)
        assert log == content(CLEAN, segment, RemoteFile.LOG)
        assert (stored == content(CLEAN, segment, RemoteFile.LOG)) is (mode is AivenMode.PLAIN)
        assert manifest.indexes is not None
        assert set(INDEX_FIELDS) - set(manifest.indexes) == (
            {RemoteFile.TRANSACTION_INDEX} if segment.transaction_index_empty else set()
        )
        indexes = (tmp_path / objects.objects[RemoteFile.INDEXES]).read_bytes()
        for file, place in manifest.indexes.items():
            data = indexes[place.position : place.position + place.size]
            assert codec.decode_index(data, place) == content(CLEAN, segment, file)
