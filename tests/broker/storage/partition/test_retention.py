from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest

from kafkalog_broker.storage.partition.retention import plan_deletion
from tests.broker.storage.helpers.stored_logs import log_config

DAY = 24 * 3600 * 1000
NOW = 100 * DAY
UNLIMITED = -1


class Segment(NamedTuple):
    base_offset: int
    size: int
    largest_timestamp: int


def retention(ms, size, *, deletes=True):
    return log_config(retention_ms=ms, retention_bytes=size, cleanup_policy=("delete",) if deletes else ("compact",))


THREE = [
    Segment(0, 100, NOW - 3 * DAY),
    Segment(10, 100, NOW - 2 * DAY),
    Segment(20, 50, NOW),
]
KEEP = retention(UNLIMITED, UNLIMITED)


def decided(segments=THREE, policy=KEEP, *, start=0, hw=None, end=30, now=NOW):
    hw = end if hw is None else hw
    return plan_deletion(segments, policy, log_start_offset=start, high_watermark=hw, log_end_offset=end, now_ms=now)


def test_retention_without_limits_deletes_no_segment():
    assert not decided().count
    assert decided().log_start_offset == 0


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_retention_deletes_segments_below_the_log_start_offset_except_the_active_one(start, count):
    deletion = decided(start=start)
    assert deletion.count == count
    assert deletion.log_start_offset == start


def test_retention_of_a_compacted_topic_deletes_only_segments_below_the_log_start_offset():
    policy = retention(0, 0, deletes=False)
    assert not decided(policy=policy).count
    assert decided(policy=policy, start=10).count == 1


@pytest.mark.parametrize(("limit", "count"), [(250, 0), (151, 0), (150, 1), (51, 1), (50, 2), (1, 2), (0, 3)])
def test_retention_deletes_a_segment_if_the_rest_still_has_retention_bytes(limit, count):
    assert decided(policy=retention(UNLIMITED, limit)).count == count


@pytest.mark.parametrize(("age", "count"), [(3 * DAY, 0), (3 * DAY - 1, 1), (2 * DAY, 1), (2 * DAY - 1, 2), (0, 2)])
def test_retention_deletes_a_segment_whose_largest_timestamp_exceeds_retention_ms(age, count):
    deletion = decided(policy=retention(age, UNLIMITED))
    assert deletion.count == count
    assert deletion.log_start_offset == (0, 10, 20, 30)[count]


def test_retention_stops_at_the_first_segment_within_retention_ms():
    segments = [THREE[0], Segment(10, 100, NOW), Segment(20, 50, NOW - 9 * DAY)]
    assert decided(segments, retention(DAY, UNLIMITED)).count == 1


def test_retention_may_delete_all_segments():
    deletion = decided(policy=retention(DAY, UNLIMITED), now=NOW + 2 * DAY)
    assert (deletion.count, deletion.log_start_offset) == (3, 30)


def test_retention_never_deletes_an_empty_active_segment():
    segments = [*THREE[:2], Segment(20, 0, NOW - 9 * DAY)]
    deletion = decided(segments, retention(DAY, 0), end=20)
    assert (deletion.count, deletion.log_start_offset) == (2, 20)
    assert not decided(segments[2:], retention(DAY, 0), end=20).count


@pytest.mark.parametrize(("hw", "count"), [(30, 3), (29, 2), (20, 2), (19, 1), (10, 1), (9, 0)])
def test_retention_deletes_no_segment_at_or_above_the_high_watermark(hw, count):
    assert decided(policy=retention(0, 0), hw=hw, now=NOW + 1).count == count


def test_retention_bytes_is_applied_before_retention_ms():
    """Segments deleted by size are not counted again, and retention.ms applies to the remaining ones."""
    assert decided(policy=retention(UNLIMITED, 150)).count == 1
    assert decided(policy=retention(2 * DAY - 1, 150)).count == 2
    young = [Segment(0, 100, NOW), Segment(10, 100, NOW - 2 * DAY), Segment(20, 50, NOW)]
    assert decided(young, retention(DAY, UNLIMITED)).count == 0
    assert decided(young, retention(DAY, 150)).count == 2


def test_retention_of_random_logs_deletes_only_a_prefix_of_segments():
    rng = random.Random(4)
    for _ in range(2000):
        bases = list(itertools.accumulate(rng.randint(1, 5) for _ in range(rng.randint(1, 6))))
        segments = [Segment(base, rng.randint(0, 3), NOW - rng.randint(-2, 5)) for base in bases]
        end = bases[-1] + rng.randint(0, 4)
        hw, start = rng.randint(bases[0], end), rng.randint(bases[0], end)
        policy = retention(rng.randint(-1, 6), rng.randint(-1, 9), deletes=rng.random() < 0.8)
        start = min(start, hw)
        deletion = decided(segments, policy, start=start, hw=hw, end=end)
        kept = segments[deletion.count :]
        assert start <= deletion.log_start_offset <= hw
        assert kept or segments[-1].size
        by_start = decided(segments, KEEP, start=start, hw=hw, end=end).count
        by_size = decided(
            segments,
            retention(UNLIMITED, policy.retention_bytes, deletes=policy.deletes_by_retention),
            start=start,
            hw=hw,
            end=end,
        ).count
        assert by_start <= by_size <= deletion.count
        if by_size > by_start:
            assert sum(segment.size for segment in segments[by_size:]) >= policy.retention_bytes


def tiered(**limits):
    """Local limits of a log whose segments are copied to remote storage; there is no limit of the whole log."""
    return log_config(
        remote_storage_enable=True, retention_ms=UNLIMITED, retention_bytes=UNLIMITED,
        **{
            "cleanup_policy": ("delete",), "local_retention_ms": UNLIMITED, "local_retention_bytes": UNLIMITED, **limits
        },
    )  # fmt: skip


def local(segments, policy, *, copied, end=30, hw=None):
    deletion = plan_deletion(
        segments, policy, log_start_offset=0, high_watermark=end if hw is None else hw, log_end_offset=end, now_ms=NOW,
        highest_remote_offset=copied,
    )  # fmt: skip
    return deletion.count, deletion.rolls_active


OLD = [Segment(0, 100, NOW - 3 * DAY), Segment(20, 50, NOW - 2 * DAY)]


@pytest.mark.parametrize(
    ("limits", "rolls"),
    [
        ({"local_retention_ms": DAY}, True),
        ({"local_retention_ms": 2 * DAY}, False),
        ({"local_retention_bytes": 0}, True),
        ({"local_retention_bytes": 1}, False),
    ],
)
def test_tiered_active_segment_beyond_local_retention_is_rolled(limits, rolls):
    assert local(OLD, tiered(**limits), copied=19) == (1, rolls)


def test_tiered_active_segment_is_not_rolled_before_earlier_segments_are_copied():
    assert local(OLD, tiered(local_retention_ms=DAY), copied=-1) == (0, False)


def test_tiered_active_segment_above_the_high_watermark_or_empty_is_not_rolled():
    assert local(OLD, tiered(local_retention_ms=DAY), copied=19, hw=29) == (1, False)
    empty = [OLD[0], Segment(20, 0, NOW - 2 * DAY)]
    assert local(empty, tiered(local_retention_ms=DAY), copied=19, end=20) == (1, False)


@pytest.mark.parametrize(("policy", "decision"), [((), (1, True)), (("compact",), (0, False))])
def test_empty_cleanup_policy_of_a_tiered_topic_limits_only_the_local_log(policy, decision):
    assert local(OLD, tiered(local_retention_ms=DAY, cleanup_policy=policy), copied=19) == decision
    assert not decided(OLD, log_config(retention_ms=DAY, cleanup_policy=policy)).count


class DatedSegment(NamedTuple):
    base_offset: int
    size: int
    largest_timestamp: int
    modified_ms: int


def test_copied_segment_with_a_future_timestamp_has_the_age_of_its_file():
    policy = tiered(local_retention_ms=DAY)
    segments = [DatedSegment(0, 100, NOW + 9 * DAY, NOW - DAY - 1), DatedSegment(20, 50, NOW, NOW)]
    assert local(segments, policy, copied=19) == (1, False)
    segments[0] = segments[0]._replace(modified_ms=NOW - DAY)
    assert local(segments, policy, copied=19) == (0, False)


def test_segment_with_a_future_timestamp_is_kept_without_remote_storage():
    segments = [DatedSegment(0, 100, NOW + 9 * DAY, NOW - 9 * DAY), DatedSegment(20, 50, NOW - 9 * DAY, NOW)]
    assert not decided(segments, retention(DAY, UNLIMITED)).count
