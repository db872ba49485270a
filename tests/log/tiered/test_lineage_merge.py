"""A log put together of local and remote segments: cases of the rules, Kafka's own lookups, and random ones."""

from __future__ import annotations

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.lineage import ExclusionReason, exclusion_reason, newest_segment, without_empty_epochs
from kafkalog_spark.log.tiered.lineage_merge import (
    LineageMerge,
    LogPiece,
    OffsetSpan,
    SkipReason,
    latest_topic_id,
    merge_lineage,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from tests.log.tiered.kafkas_rules import LOG_END, random_lineage, random_uploads, recorded
from tests.log.tiered.made_segments import PARTITION, epochs, segment

LINEAGE = epochs({0: 0})


def reasons(walk: LineageMerge) -> dict[RemoteSegment, ExclusionReason | SkipReason]:
    return {left.segment: left.reason for left in walk.excluded}


def test_consecutive_segments_are_all_read() -> None:
    a, b, c = segment(0, 99), segment(100, 149), segment(150, 300)
    walk = merge_lineage([c, a, b], LINEAGE)
    assert walk == LineageMerge((LogPiece(a, 0, 100), LogPiece(b, 100, 150), LogPiece(c, 150, 301)), (), ())
    assert (walk.pieces[0].start, walk.pieces[-1].until) == (0, 301)


def test_larger_upload_replaces_a_smaller_one() -> None:
    """The next leader uploads 0-200 where the one before it had come to 0-100."""
    small, large = segment(0, 100, time=2), segment(0, 200, time=1)
    walk = merge_lineage([small, large], LINEAGE)
    assert walk.pieces == (LogPiece(large, 0, 201),)
    assert reasons(walk) == {small: SkipReason.COVERED}


def test_overlapping_uploads_are_clipped() -> None:
    """10-90 of one leader; 5-100 and 101-200 of the next: offset 95 is only in the second."""
    first, second, third = segment(10, 90, {0: 10}), segment(5, 100, {0: 5}), segment(101, 200, {0: 101})
    walk = merge_lineage([first, second, third], LINEAGE)
    assert walk.pieces == (LogPiece(second, 5, 101), LogPiece(third, 101, 201))
    assert reasons(walk) == {first: SkipReason.COVERED}


def test_interleaved_uploads_are_each_read_once() -> None:
    a, b, c = segment(0, 60), segment(40, 120, {0: 40}), segment(100, 180, {0: 100})
    assert merge_lineage([a, b, c], LINEAGE).pieces == (LogPiece(a, 0, 61), LogPiece(b, 61, 121), LogPiece(c, 121, 181))


def test_newest_of_equal_uploads_is_read() -> None:
    old, new = segment(0, 100, name=2, time=10), segment(0, 100, name=1, time=20)
    for given_order in ([old, new], [new, old]):
        walk = merge_lineage(given_order, LINEAGE)
        assert walk.pieces == (LogPiece(new, 0, 101),)
        assert reasons(walk) == {old: SkipReason.COVERED}


def test_local_log_is_preferred() -> None:
    a, b, c = segment(0, 99), segment(100, 199, {0: 100}), segment(200, 299, {0: 200})
    walk = merge_lineage([a, b, c], LINEAGE, local=[OffsetSpan(150, 300), OffsetSpan(300, 350)], log_end=350)
    assert walk.pieces == (LogPiece(a, 0, 100), LogPiece(b, 100, 150), LogPiece(None, 150, 350))
    assert reasons(walk) == {c: SkipReason.LOCAL}


def test_local_only_remote_only_and_empty_logs_are_walked() -> None:
    assert merge_lineage([], LINEAGE, local=[OffsetSpan(7, 9)]).pieces == (LogPiece(None, 7, 9),)
    assert merge_lineage([], []) == LineageMerge((), (), ())
    assert merge_lineage([], LINEAGE, local=[OffsetSpan(7, 7)]).pieces == ()


def test_gap_in_the_local_log_is_read_remotely() -> None:
    """A copied log directory from which files were lost."""
    a = segment(0, 299)
    walk = merge_lineage([a], LINEAGE, local=[OffsetSpan(0, 100), OffsetSpan(200, 400)], log_end=400)
    assert walk.pieces == (LogPiece(None, 0, 100), LogPiece(a, 100, 200), LogPiece(None, 200, 400))


def test_gaps_are_reported() -> None:
    a, c = segment(0, 99), segment(150, 199, {0: 150})
    walk = merge_lineage([a, c], LINEAGE, local=[OffsetSpan(250, 260)], log_end=260)
    assert walk.holes == (OffsetSpan(100, 150), OffsetSpan(200, 250))
    assert walk.pieces == (LogPiece(a, 0, 100), LogPiece(c, 150, 200), LogPiece(None, 250, 260))


def test_log_start_offset_clips_segments() -> None:
    """DeleteRecords into the middle of a segment."""
    a, b = segment(0, 99), segment(100, 199, {0: 100})
    walk = merge_lineage([a, b], LINEAGE, log_start=130, local=[OffsetSpan(120, 140)])
    assert walk.pieces == (LogPiece(None, 130, 140), LogPiece(b, 140, 200))
    assert reasons(walk) == {a: SkipReason.BELOW_LOG_START}
    assert merge_lineage([a, b], LINEAGE, log_start=50).pieces[0] == LogPiece(a, 50, 100)
    assert merge_lineage([a, b], LINEAGE, log_start=100).pieces == (LogPiece(b, 100, 200),)


def test_lineage_starts_at_the_log_start_offset() -> None:
    """Kafka cuts the checkpoint with the log: without any other word of the log's start, that is it."""
    a = segment(14, 150, {5: 14, 7: 15, 9: 100})
    assert merge_lineage([a], epochs({7: 51, 9: 100})).pieces == (LogPiece(a, 51, 151),)


def test_segments_discarded_by_an_unclean_election_are_not_read() -> None:
    lineage = epochs({0: 0, 2: 80})
    kept, aside, goes_on = segment(0, 49), segment(50, 99, {0: 50}), segment(80, 120, {2: 80})
    same = segment(50, 79, {0: 50})
    walk = merge_lineage([kept, aside, goes_on, same], lineage, log_end=200)
    assert walk.pieces == (LogPiece(kept, 0, 50), LogPiece(same, 50, 80), LogPiece(goes_on, 80, 121))
    assert reasons(walk) == {aside: ExclusionReason.ENDS_AFTER_EPOCH}
    assert walk.excluded[0].reason.value == "it ends after the log's next leader epoch begins"


def test_newest_segment_gives_the_lineage_without_a_local_log() -> None:
    old_leaders, new_leaders = segment(0, 99), segment(0, 79)
    newer = segment(80, 150, {2: 80})
    segments = [old_leaders, new_leaders, newer]
    assert newest_segment(segments) is newer
    walk = merge_lineage(segments, epochs({0: 0, 2: 80}))  # what newer's leader-epoch file says
    assert walk.pieces == (LogPiece(new_leaders, 0, 80), LogPiece(newer, 80, 151))
    assert reasons(walk) == {old_leaders: ExclusionReason.ENDS_AFTER_EPOCH}


def test_recreated_topic_has_no_segment_of_the_old_one() -> None:
    before = TopicIdPartition("orders", uuid.UUID(int=3), 3)
    old, new = segment(0, 500, partition=before, time=100), segment(0, 99, time=200)
    assert latest_topic_id([old, new]) == PARTITION.topic_id
    assert latest_topic_id([]) is None
    walk = merge_lineage([old, new], LINEAGE, topic_id=PARTITION.topic_id)
    assert walk.pieces == (LogPiece(new, 0, 100),)
    assert reasons(walk) == {old: SkipReason.OTHER_TOPIC_ID}


def check(walk: LineageMerge, valid: list[RemoteSegment], local: list[OffsetSpan], floor: int, log_start: int) -> None:
    """The walk against a map of every offset."""
    held = {offset for span in local for offset in range(max(span.start, log_start), span.until)}
    remote = {offset for part in valid for offset in range(max(part.start_offset, floor), part.until)}
    read: dict[int, RemoteSegment | None] = {}
    for piece in walk.pieces:
        assert piece.start < piece.until
        for offset in range(piece.start, piece.until):
            assert offset not in read
            read[offset] = piece.source
            if piece.source is None:
                assert offset in held
            else:
                assert piece.source in valid
                assert piece.source.start_offset <= offset <= piece.source.end_offset
                assert offset not in held
    assert read.keys() == held | remote
    assert [piece.start for piece in walk.pieces] == sorted(piece.start for piece in walk.pieces)
    missing = set(range(min(read, default=0), max(read, default=-1) + 1)) - read.keys()
    assert {offset for hole in walk.holes for offset in range(*hole)} == missing


spans = st.lists(st.tuples(st.integers(0, LOG_END), st.integers(0, 15)), max_size=3)


@given(st.integers(0, 2**32), spans, st.integers(0, 40) | st.none())
def test_every_available_offset_is_read_once(
    seed: int, given_spans: list[tuple[int, int]], log_start: int | None
) -> None:
    source = random.Random(seed)
    lineage = without_empty_epochs(EpochEntry(*entry) for entry in random_lineage(source))
    uploads = [
        segment(start, end, dict(there), name=number, time=number)
        for number, (start, end, there) in enumerate(
            random_uploads(source, [(entry.epoch, entry.start_offset) for entry in lineage])
        )
    ]
    aside = [segment(50, 59, {99: 50}, name=1000)]  # of an epoch that the log does not have
    local = [OffsetSpan(start, start + size) for start, size in given_spans]
    walk = merge_lineage([*aside, *uploads], lineage, local=local, log_start=log_start, log_end=LOG_END)
    floor = max(log_start or 0, lineage[0].start_offset)
    valid = [part for part in uploads if exclusion_reason(part, lineage, LOG_END) is None]
    check(walk, valid, local, floor, log_start or 0)
    taken = {piece.source for piece in walk.pieces} - {None}
    assert reasons(walk).keys() | taken == {*aside, *uploads}
    assert not reasons(walk).keys() & taken
    other_order = merge_lineage(
        [*reversed(uploads), *aside], lineage, local=local[::-1], log_start=log_start, log_end=LOG_END
    )
    assert (other_order.pieces, other_order.holes, reasons(other_order)) == (walk.pieces, walk.holes, reasons(walk))


def test_segments_found_by_kafkas_lookup_are_read() -> None:
    """RemoteLogMetadataCache of Kafka 4.3.0, asked for each offset after the same uploads: where it finds a segment,
    the walk reads that offset."""
    asked = 0
    for case, answers in recorded()["cache"]:
        lineage = without_empty_epochs(EpochEntry(*entry) for entry in case["lineage"])
        uploads = [
            segment(start, end, dict(there), name=number, time=number)
            for number, (start, end, there) in enumerate(case["uploads"])
        ]
        walk = merge_lineage(uploads, lineage)
        read = {offset: piece.source for piece in walk.pieces for offset in range(piece.start, piece.until)}
        for (epoch, offset), answer in zip(case["queries"], answers, strict=True):
            if answer == "-":
                continue
            assert read.get(offset) is not None, (case, epoch, offset)
            asked += 1
    assert asked > 5000
