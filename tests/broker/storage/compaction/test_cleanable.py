from __future__ import annotations

import pytest

from kafkalog_broker.storage.compaction.cleanable import LogFacts, SegmentFacts, cleanable
from kafkalog_broker.storage.compaction.segment_groups import SourceSize, group_segments
from kafkalog_spark.format.index_file import MAX_RELATIVE_OFFSET
from tests.broker.storage.helpers.stored_logs import log_config

NOW = 1_000_000
NEVER = 2**63 - 1


def segment(base, size=100, largest=0, first=0):
    return SegmentFacts(base, size, largest, first)


def log(*segments, start=0, end=1000, stable=1000, checkpoint=None):
    return LogFacts(segments, start, end, stable, checkpoint)


def part(facts, ratio=0.5, min_lag=0, max_lag=NEVER):
    config = log_config(
        min_cleanable_dirty_ratio=ratio, min_compaction_lag_ms=min_lag, max_compaction_lag_ms=max_lag
    )  # fmt: skip
    found = cleanable(facts, config, NOW)
    return found, found.is_due(config)


FOUR = (segment(0), segment(100), segment(200), segment(300, 7))


def test_log_without_a_checkpoint_is_dirty_except_for_the_active_segment():
    found, due = part(log(*FOUR))
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 300)
    assert (found.clean_bytes, found.dirty_bytes, found.ratio, due) == (0, 300, 1.0, True)


def test_log_with_only_an_active_segment_is_never_due():
    assert not part(log(segment(0)), ratio=0.0)[1]


@pytest.mark.parametrize(("checkpoint", "ratio", "due"), [(100, 2 / 3, True), (200, 1 / 3, False), (300, 0.0, False)])
def test_log_is_due_if_its_dirty_ratio_exceeds_the_minimum(checkpoint, ratio, due):
    found, is_due = part(log(*FOUR, checkpoint=checkpoint))
    assert (found.ratio, is_due) == (pytest.approx(ratio), due)


def test_log_whose_dirty_ratio_equals_the_minimum_is_not_due():
    found, due = part(log(segment(0), segment(100), segment(200), checkpoint=100))
    assert (found.ratio, due) == (0.5, False)


@pytest.mark.parametrize(("stable", "until"), [(299, 200), (300, 300), (100, 100), (150, 100), (50, 0)])
def test_first_uncleanable_offset_is_the_segment_that_holds_the_last_stable_offset(stable, until):
    assert part(log(*FOUR, stable=stable))[0].first_uncleanable_offset == until


def test_segment_younger_than_min_compaction_lag_is_not_cleanable():
    facts = log(segment(0, largest=NOW - 500), segment(100, largest=NOW - 99), segment(200, largest=1), segment(300))
    assert part(facts, min_lag=100)[0].first_uncleanable_offset == 100
    assert part(facts, min_lag=99)[0].first_uncleanable_offset == 300
    assert part(facts, min_lag=0)[0].first_uncleanable_offset == 300


def test_log_with_a_dirty_record_older_than_max_compaction_lag_is_due():
    facts = log(segment(0, 1000), segment(100, 10, first=NOW - 200), segment(200), checkpoint=100)
    assert part(facts, max_lag=199)[1]
    assert part(facts, max_lag=199)[0].overdue_ms == 1
    assert not part(facts, max_lag=200)[1]


def test_segment_without_timestamps_is_not_overdue():
    assert part(log(segment(0, first=-1), segment(100)), max_lag=1)[0].overdue_ms == 0


@pytest.mark.parametrize(("checkpoint", "start", "resets"), [(50, 120, True), (1001, 0, True), (1000, 0, False)])
def test_checkpoint_outside_the_log_is_reset_to_the_log_start_offset(checkpoint, start, resets):
    found, _ = part(log(*FOUR, checkpoint=checkpoint, start=start))
    assert found.resets_checkpoint == resets
    assert found.first_dirty_offset == (start if resets else checkpoint)


def test_segment_with_the_checkpoint_inside_counts_as_clean_and_dirty():
    """Matches Kafka: the segment is read for its dirty records and rewritten for its clean ones."""
    found, _ = part(log(*FOUR, checkpoint=150))
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)


def test_log_with_its_checkpoint_in_the_active_segment_is_not_due():
    found, due = part(log(*FOUR, checkpoint=310), ratio=0.0)
    assert (found.dirty_bytes, due) == (0, False)


def groups(*sizes, most=100, most_index=100, end=10_000):
    return [list(sizes[first:last]) for first, last in group_segments(sizes, most, most_index, end)]


def size(base, log_size, index=1, time_index=1):
    return SourceSize(base, log_size, index, time_index)


def test_adjacent_segments_are_grouped_up_to_the_segment_size():
    parts = [size(0, 40), size(1, 60), size(2, 1), size(3, 99), size(4, 200), size(5, 0)]
    assert groups(*parts) == [parts[:2], parts[2:4], parts[4:5], parts[5:]]


def test_segment_groups_are_limited_by_index_size():
    parts = [size(0, 1, index=60), size(1, 1, index=41), size(2, 1, time_index=99), size(3, 1, time_index=1)]
    assert groups(*parts) == [parts[:1], parts[1:3], parts[3:]]


def test_segment_groups_are_limited_by_the_relative_offset_except_for_empty_segments():
    far = MAX_RELATIVE_OFFSET + 1
    full = [size(0, 1), size(5, 1), size(far + 1, 1)]
    assert groups(*full, end=far + 2) == [full[:1], full[1:]]
    empty = [size(0, 1), size(5, 0), size(far + 1, 1)]
    assert groups(*empty, end=far + 2)[0] == empty[:2]


def test_segment_groups_of_no_segments_are_empty():
    assert groups() == []
