"""Which segments are of a log: a case for each rule, and Kafka's own verdicts on random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.log.tiered.lineage import ExclusionReason, exclusion_reason, newest_segment, without_empty_epochs
from kafkalog_spark.log.tiered.remote_log_events import RemoteSegmentState
from kafkalog_spark.log.tiered.remote_log_state import NEXT_STATES
from tests.log.tiered.kafkas_rules import recorded
from tests.log.tiered.made_segments import epochs, segment

# Epoch 6 was never used; epochs 4 and 5 began at the same offset, so nothing was written in 4.
CHECKPOINT = epochs({1: 10, 2: 20, 3: 30, 4: 50, 5: 50, 7: 70})
LINEAGE = without_empty_epochs(CHECKPOINT)
END = 90


def test_empty_epochs_are_dropped() -> None:
    assert epochs({1: 10, 2: 20, 3: 30, 5: 50, 7: 70}) == LINEAGE
    assert without_empty_epochs([]) == []
    assert without_empty_epochs(epochs({0: 0, 1: 0, 2: 0})) == epochs({2: 0})
    assert without_empty_epochs(reversed(CHECKPOINT)) == LINEAGE


@pytest.mark.parametrize(
    ("start", "end", "given_epochs"),
    [
        (10, 19, {1: 10}),
        (15, 35, {1: 15, 2: 20, 3: 30}),
        (10, 89, {1: 10, 2: 20, 3: 30, 5: 50, 7: 70}),
        (20, 29, {2: 20}),
        (22, 27, {2: 22}),  # begins within the epoch: another segment was rolled there
        (
            5,
            19,
            {1: 5},
        ),  # the log's first epoch: what is below its start was deleted from the log, not from the segment
        (0, 25, {0: 0, 1: 10, 2: 20}),  # epochs that the log no longer has
        (0, 25, {0: 0, 1: 4, 2: 20}),
        (45, 60, {3: 45, 4: 50, 5: 50}),  # an empty epoch in between
        (70, 89, {7: 70}),
    ],
)
def test_segments_with_matching_epochs_belong_to_the_log(start: int, end: int, given_epochs: dict[int, int]) -> None:
    assert exclusion_reason(segment(start, end, given_epochs), LINEAGE, END) is None


@pytest.mark.parametrize(
    ("start", "end", "given_epochs", "reason"),
    [
        (10, 19, {}, ExclusionReason.NO_EPOCHS),
        (0, 9, {0: 0}, ExclusionReason.EPOCH_OUTSIDE),
        (70, 89, {7: 70, 8: 80}, ExclusionReason.EPOCH_OUTSIDE),
        (60, 69, {5: 60, 6: 65}, ExclusionReason.OTHER_NEXT_EPOCH),
        (60, 75, {5: 60, 6: 65, 7: 70}, ExclusionReason.OTHER_NEXT_EPOCH),
        (65, 69, {6: 65}, ExclusionReason.EPOCH_UNKNOWN),
        (15, 29, {2: 15}, ExclusionReason.BEGINS_BEFORE_EPOCH),
        (15, 29, {1: 15, 2: 21}, ExclusionReason.OTHER_NEXT_EPOCH),
        (15, 29, {1: 15, 2: 19}, ExclusionReason.OTHER_NEXT_EPOCH),
        (15, 35, {1: 15, 3: 30}, ExclusionReason.OTHER_NEXT_EPOCH),
        (20, 30, {2: 20}, ExclusionReason.ENDS_AFTER_EPOCH),
        (20, 50, {2: 20, 3: 30}, ExclusionReason.ENDS_AFTER_EPOCH),
        (70, 90, {7: 70}, ExclusionReason.ENDS_AFTER_LOG),
    ],
)
def test_segments_with_other_epochs_do_not_belong_to_the_log(
    start: int, end: int, given_epochs: dict[int, int], reason: ExclusionReason
) -> None:
    assert exclusion_reason(segment(start, end, given_epochs), LINEAGE, END) is reason


def test_segments_without_a_local_log_are_not_compared_with_its_end() -> None:
    assert exclusion_reason(segment(70, 90, {7: 70}), LINEAGE) is None


def test_no_lineage_accepts_no_segment() -> None:
    assert exclusion_reason(segment(0, 9), []) is ExclusionReason.NO_LINEAGE
    assert exclusion_reason(segment(0, 9, {}), []) is ExclusionReason.NO_EPOCHS


def test_newest_segment_has_the_highest_epoch_then_the_largest_end() -> None:
    behind = segment(0, 100, {3: 0})
    ahead = segment(0, 50, {3: 0, 4: 40})
    further = segment(51, 90, {4: 51})
    assert newest_segment([behind, further, ahead]) is further
    assert newest_segment([behind, ahead]) is ahead
    assert newest_segment([]) is None
    assert newest_segment([segment(0, 9, {}), segment(0, 5, {0: 0})]) == segment(0, 5, {0: 0})


def test_lineage_checks_of_random_segments_equal_kafkas() -> None:
    """RemoteLogManager.isRemoteSegmentWithinLeaderEpochs of Kafka 4.3.0."""
    verdicts = recorded()["within"]
    for case, said in verdicts:
        lineage = without_empty_epochs(EpochEntry(*entry) for entry in case["lineage"])
        start, end, given_epochs = case["segment"]
        ours = exclusion_reason(segment(start, end, dict(given_epochs)), lineage, case["log_end"])
        assert (ours is None) == said, f"{case}: {ours}"
    assert {said for _, said in verdicts} == {True, False}


def test_segment_state_transitions_equal_kafkas() -> None:
    """RemoteLogSegmentState.isValidTransition of Kafka 4.3.0."""
    ours = {
        (before.name, after.name): after is before or after in NEXT_STATES[before]
        for before in RemoteSegmentState
        for after in RemoteSegmentState
    }
    assert ours == {(before, after): said for before, after, said in recorded()["states"]}


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 30), max_size=6))
def test_segment_cut_from_the_log_belongs_to_it(given_epochs: dict[int, int]) -> None:
    """Whatever is cut out of a log has the epochs that the log has there."""
    starts = sorted(given_epochs.values())
    lineage = without_empty_epochs(EpochEntry(*pair) for pair in zip(sorted(given_epochs), starts, strict=True))
    if not lineage:
        return
    for start in range(lineage[0].start_offset, 31):
        for end in range(start, 31, 5):
            there = {
                entry.epoch: max(entry.start_offset, start)
                for entry, follower in zip(lineage, [*lineage[1:], EpochEntry(99, 2**40)], strict=True)
                if entry.start_offset <= end and follower.start_offset > start
            }
            assert exclusion_reason(segment(start, end, there), lineage, 31) is None
