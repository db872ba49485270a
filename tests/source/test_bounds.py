"""What bounds come to in a log: Spark's KafkaRelationSuite and KafkaOffsetReaderSuite without a broker."""

from __future__ import annotations

import pytest

from kafkalog_spark.errors import DataLoss, OffsetOutOfRange, OptionError
from kafkalog_spark.source.bound_resolution import LogBounds, resolve_bounds
from kafkalog_spark.source.bounds import AT_EARLIEST, AT_LATEST, EARLIEST, LATEST, Bound, check_bounds_agree
from kafkalog_spark.source.offset_range import OffsetRange
from tests.source.helpers.bound_logs import T0, T1, T2, edges, log, offsets


def test_specific_starts_and_ends_must_name_the_same_partitions() -> None:
    with pytest.raises(OptionError) as caught:
        check_bounds_agree(offsets({T0: 1, T1: 2}), offsets({T0: 5}))
    assert str(caught.value) == (
        "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for start "
        "offset: Set(t-0, t-1), topic-partitions for end offset: Set(t-0)."
    )
    with pytest.raises(OptionError, match="should have the same topic-partitions"):
        check_bounds_agree(Bound(partitions={T0: 1}, by_time=True), Bound(partitions={T1: 1}, by_time=True))
    with pytest.raises(OptionError, match=r"Set\(a-\*\), topic-partitions for end offset: Set\(b-\*\)"):
        check_bounds_agree(offsets({}, a=EARLIEST), offsets({}, b=LATEST))


def test_specific_start_after_its_end_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        check_bounds_agree(offsets({T0: 1}), offsets({T0: 0}))
    assert caught.value.what == "The specified start offset 1 is greater than the end offset 0 for topic t partition 0."
    with pytest.raises(OptionError) as caught:
        check_bounds_agree(Bound(partitions={T0: 100}, by_time=True), Bound(partitions={T0: 50}, by_time=True))
    assert caught.value.what == (
        "The specified start timestamp 100 is greater than the end timestamp 50 for topic t partition 0."
    )


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (offsets({T0: 1}), offsets({T0: 1})),
        (offsets({T0: 1}), offsets({T0: LATEST})),
        (offsets({T0: EARLIEST}), offsets({T0: 0})),
        (offsets({}, t=EARLIEST), offsets({T0: 0, T1: 1})),
        (offsets({T0: 7}), Bound(partitions={T1: 1}, by_time=True)),
        (AT_EARLIEST, offsets({T1: 1})),
        (Bound(9, by_time=True), Bound(1, by_time=True)),
    ],
)
def test_late_bound_and_specific_bounds_are_not_compared_early(start: Bound, end: Bound) -> None:
    check_bounds_agree(start, end)


@pytest.mark.parametrize("specified", [{T0: 0, T1: 0}, {T0: 0, T1: 0, T2: 0, ("t", 3): 0}])
def test_offsets_must_name_exactly_the_assigned_partitions(specified: dict[tuple[str, int], int]) -> None:
    logs = {T0: log(0, 1), T1: log(0, 1), T2: log(0, 1)}
    with pytest.raises(OptionError) as caught:
        resolve_bounds(offsets(specified), AT_LATEST, logs)
    names = ", ".join(f"t-{partition}" for _, partition in specified)
    assert caught.value.what == (
        "Partitions specified for Kafka start offsets don't match what are assigned. Maybe topic partitions are "
        "created or deleted while the query is running. Use -1 for latest, -2 for earliest. "
        f"Specified: Set({names}) Assigned: Set(t-0, t-1, t-2)"
    )
    assert caught.value.hint == (
        "not specified: Set(t-2)" if len(specified) == 2 else "not in the log directory, or not subscribed to: t-3"
    )
    with pytest.raises(OptionError, match="specified for Kafka end offsets don't match"):
        resolve_bounds(AT_EARLIEST, offsets(specified), logs)


@pytest.mark.parametrize("specified", [{T0: 0, T1: 0}, {T0: 0, T1: 0, T2: 0, ("t", 3): 0}])
@pytest.mark.parametrize("side", ["start", "end"])
def test_timestamps_must_name_exactly_the_assigned_partitions(specified: dict[tuple[str, int], int], side: str) -> None:
    logs = {T0: log(0, 1), T1: log(0, 1), T2: log(0, 1)}
    bound = Bound(partitions=specified, by_time=True)
    with pytest.raises(OptionError) as caught:
        resolve_bounds(bound if side == "start" else AT_EARLIEST, bound if side == "end" else AT_LATEST, logs)
    names = ", ".join(f"t-{partition}" for _, partition in specified)
    assert caught.value.what == (
        f"Partitions specified for Kafka timestamp based {side} offsets don't match what are assigned. Maybe topic "
        "partitions are created or deleted while the query is running, or you didn't specify all the partitions. "
        f"Specified: Set({names}) Assigned: Set(t-0, t-1, t-2)"
    )


def test_bound_of_a_whole_topic_applies_to_all_its_partitions() -> None:
    logs = {T0: log(3, 9), T1: log(4, 8), ("u", 0): log(0, 5)}
    ranges = resolve_bounds(offsets({("u", 0): 2}, t=EARLIEST), offsets({T0: 7, T1: LATEST}, u=LATEST), logs)
    assert edges(ranges) == [(3, 7), (4, 8), (2, 5)]
    assert [r.start_is_earliest for r in ranges] == [True, True, False]
    assert [r.end_is_latest for r in ranges] == [False, True, True]
    with pytest.raises(OptionError, match=r"not subscribed to: v$"):
        resolve_bounds(offsets({("u", 0): 2}, t=EARLIEST, v=EARLIEST), AT_LATEST, logs)


def test_error_about_thousands_of_partitions_is_shortened() -> None:
    logs = {("t", partition): log(0, 1) for partition in range(5000)}
    with pytest.raises(OptionError) as caught:
        resolve_bounds(offsets({T0: 0}), AT_LATEST, logs)
    assert "t-19, ... (4980 more)" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_default_bounds_are_late_bound() -> None:
    (only,) = resolve_bounds(AT_EARLIEST, AT_LATEST, {T0: log(5, 9)})
    assert only == OffsetRange("t", 0, 5, 9, start_is_earliest=True, end_is_latest=True, from_earliest=True)


def test_offsets_minus_one_and_minus_two_are_late_bound_and_others_are_not() -> None:
    logs = {T0: log(5, 9), T1: log(1, 3)}
    ranges = resolve_bounds(offsets({T0: 6, T1: EARLIEST}), offsets({T0: LATEST, T1: 2}), logs)
    assert ranges == [
        OffsetRange("t", 0, 6, 9, end_is_latest=True),
        OffsetRange("t", 1, 1, 2, start_is_earliest=True, from_earliest=True),
    ]


def test_ranges_are_sorted_by_topic_and_partition_number() -> None:
    logs = {("b", 0): log(0, 1), ("a", 10): log(0, 1), ("a", 9): log(0, 1)}
    assert [r.topic_partition for r in resolve_bounds(AT_EARLIEST, AT_LATEST, logs)] == [("a", 9), ("a", 10), ("b", 0)]


def test_stream_may_start_at_latest() -> None:
    (only,) = resolve_bounds(AT_LATEST, AT_LATEST, {T0: log(5, 9)})
    assert (only.start, only.end, only.start_is_earliest) == (9, 9, False)


@pytest.mark.parametrize(
    ("start", "end", "resolved"),
    [
        (offsets({T0: 12}), AT_LATEST, (12, 10)),
        (AT_EARLIEST, offsets({T0: 3}), (4, 3)),
        (offsets({T0: 9}), Bound(5, by_time=True), (9, 5)),
        (Bound(8, by_time=True), offsets({T0: 5}), (8, 5)),
        (Bound(8, by_time=True), Bound(5, by_time=True), (8, 5)),
    ],
)
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_resolved_start_after_its_end_is_refused(
    start: Bound, end: Bound, resolved: tuple[int, int], fail_on_data_loss: bool
) -> None:
    logs = {T0: log(4, 10, [4, 5, 6, 7, 8, 9])}
    with pytest.raises(OffsetOutOfRange) as caught:
        resolve_bounds(start, end, logs, fail_on_data_loss=fail_on_data_loss)
    assert not isinstance(caught.value, DataLoss)
    assert caught.value.what == (
        f"The resolved start offset {resolved[0]} is greater than the resolved end offset {resolved[1]} "
        "for topic t partition 0."
    )
    assert caught.value.topic_partition == "t-0"


def test_timestamp_resolves_to_the_first_offset_at_or_after_it() -> None:
    logs = {T0: log(10, 14, [100, 300, 200, 400]), T1: log(0, 2, [250, 260])}
    assert edges(resolve_bounds(Bound(200, by_time=True), Bound(400, by_time=True), logs)) == [(11, 13), (0, 2)]
    specific = Bound(partitions={T0: 301, T1: 260}, by_time=True)
    assert resolve_bounds(specific, AT_LATEST, logs) == [
        OffsetRange("t", 0, 13, 14, end_is_latest=True),
        OffsetRange("t", 1, 1, 2, end_is_latest=True),
    ]


def test_no_matched_offset_for_a_start_timestamp_is_an_error() -> None:
    with pytest.raises(OptionError) as caught:
        resolve_bounds(Bound(500, by_time=True), AT_LATEST, {T0: log(0, 2, [100, 200])})
    assert caught.value.what == "No offset matched from request of topic-partition t-0 and timestamp 500."
    start = Bound(partitions={T0: 0, T1: 7}, by_time=True)
    with pytest.raises(OptionError, match="t-1 and timestamp 7"):
        resolve_bounds(start, AT_LATEST, {T0: log(0, 1, [1]), T1: log(5, 5, [])}, on_no_match="error")


def test_no_matched_offset_for_a_start_timestamp_with_strategy_latest_is_the_end() -> None:
    (only,) = resolve_bounds(Bound(500, by_time=True), AT_LATEST, {T0: log(0, 2, [100, 200])}, on_no_match="latest")
    assert only == OffsetRange("t", 0, 2, 2, end_is_latest=True)


@pytest.mark.parametrize("on_no_match", ["error", "latest"])
def test_no_matched_offset_for_an_end_timestamp_is_the_current_log_end(on_no_match: str) -> None:
    logs = {T0: log(0, 2, [100, 200])}
    (only,) = resolve_bounds(AT_EARLIEST, Bound(500, by_time=True), logs, on_no_match=on_no_match)  # type: ignore[arg-type]
    assert (only.start, only.end, only.end_is_latest) == (0, 2, False)


def test_timestamp_match_after_the_last_stable_offset_is_ignored() -> None:
    held_back = LogBounds(0, 1, lambda timestamp: 1)
    with pytest.raises(OptionError, match="No offset matched"):
        resolve_bounds(Bound(500, by_time=True), AT_LATEST, {T0: held_back})
    assert edges(resolve_bounds(AT_EARLIEST, Bound(500, by_time=True), {T0: held_back})) == [(0, 1)]


def test_timestamp_match_below_the_log_start_offset_starts_at_the_log_start() -> None:
    deleted = LogBounds(3, 9, lambda timestamp: 1)
    assert edges(resolve_bounds(Bound(500, by_time=True), AT_LATEST, {T0: deleted})) == [(3, 9)]


def test_timestamps_minus_one_and_minus_two_resolve_to_the_current_end_and_start() -> None:
    logs = {T0: log(3, 9), T1: log(0, 4)}
    ranges = resolve_bounds(Bound(partitions={T0: -2, T1: -1}, by_time=True), Bound(-1, by_time=True), logs)
    assert ranges == [OffsetRange("t", 0, 3, 9), OffsetRange("t", 1, 4, 4)]
