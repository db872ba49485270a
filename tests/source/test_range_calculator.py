"""Splitting ranges. The tables are those of Spark's KafkaOffsetRangeCalculatorSuite and KafkaOffsetReaderSuite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.offset_range import OffsetRange
from kafkalog_spark.source.range_calculator import split_ranges

Triple = tuple[str, int, int]


def split(ranges: list[Triple], **limits: int) -> list[Triple]:
    result = split_ranges([OffsetRange(topic, 1, start, end) for topic, start, end in ranges], **limits)
    return [(r.topic, r.start, r.end) for r in result]


NO_LIMIT: list[tuple[list[Triple], list[Triple]]] = [
    ([("t1", 1, 2)], [("t1", 1, 2)]),
    ([("t1", 1, 2), ("t2", 1, 1)], [("t1", 1, 2)]),
]

MIN_PARTITIONS: dict[str, tuple[int, list[Triple], list[Triple]]] = {
    "N TopicPartitions to N offset ranges": (
        3,
        [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
        [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
    ),
    "1 TopicPartition to N offset ranges": (
        4,
        [("t1", 1, 5)],
        [("t1", 1, 2), ("t1", 2, 3), ("t1", 3, 4), ("t1", 4, 5)],
    ),
    "N skewed TopicPartitions to M offset ranges": (
        4,
        [("t1", 1, 5), ("t2", 1, 21)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    "SPARK-30656: ignore empty ranges and split the rest": (
        4,
        [("t1", 1, 1), ("t2", 1, 21)],
        [("t2", 1, 6), ("t2", 6, 11), ("t2", 11, 16), ("t2", 16, 21)],
    ),
    "SPARK-30656: N very skewed TopicPartitions to M offset ranges": (
        4,
        [("t1", 1, 2), ("t2", 1, 1001)],
        [("t1", 1, 2), ("t2", 1, 334), ("t2", 334, 667), ("t2", 667, 1001)],
    ),
    "SPARK-30656: minPartitions less than the length of topic partitions": (
        1,
        [("t1", 1, 5), ("t2", 1, 21)],
        [("t1", 1, 5), ("t2", 1, 21)],
    ),
    "range inexact multiple of minPartitions": (3, [("t1", 1, 11)], [("t1", 1, 4), ("t1", 4, 7), ("t1", 7, 11)]),
    "empty ranges ignored": (
        4,
        [("t1", 1, 5), ("t2", 1, 21), ("t3", 1, 1)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    "SPARK-28489: never drop offsets": (
        6,
        [("t1", 0, 10), ("t2", 0, 10), ("t3", 0, 1)],
        [("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10), ("t2", 0, 3), ("t2", 3, 6), ("t2", 6, 10), ("t3", 0, 1)],
    ),
    "SPARK-36576: 0 small unsplit ranges and 3 large split ranges": (
        9,
        [("t1", 0, 10000), ("t2", 0, 15000), ("t3", 0, 20000)],
        [
            ("t1", 0, 5000),
            ("t1", 5000, 10000),
            ("t2", 0, 5000),
            ("t2", 5000, 10000),
            ("t2", 10000, 15000),
            ("t3", 0, 5000),
            ("t3", 5000, 10000),
            ("t3", 10000, 15000),
            ("t3", 15000, 20000),
        ],
    ),
    "SPARK-36576: 1 small unsplit range and 2 large split ranges": (
        6,
        [("t1", 0, 500), ("t2", 0, 12000), ("t3", 0, 15001)],
        [
            ("t1", 0, 500),
            ("t2", 0, 6000),
            ("t2", 6000, 12000),
            ("t3", 0, 5000),
            ("t3", 5000, 10000),
            ("t3", 10000, 15001),
        ],
    ),
    "SPARK-36576: 2 small unsplit ranges and 1 large split range": (
        6,
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 10000)],
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 2500), ("t3", 2500, 5000), ("t3", 5000, 7500), ("t3", 7500, 10000)],
    ),
    "SPARK-46798: ranges split": (
        4,
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 2)],
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1), ("t3", 1, 2)],
    ),
    "KafkaOffsetReaderSuite: multiple topic partitions": (
        4,
        [("t1", 0, 100), ("t2", 0, 3)],
        [("t1", 0, 33), ("t1", 33, 66), ("t1", 66, 100), ("t2", 0, 3)],
    ),
}

MAX_RECORDS: dict[str, tuple[int, list[Triple], list[Triple]]] = {
    "SPARK-49259: as many as allowed": (4, [("t1", 1, 5)], [("t1", 1, 5)]),
    "SPARK-49259: fewer": (4, [("t1", 1, 2)], [("t1", 1, 2)]),
    "SPARK-49259: 1 TopicPartition to N offset ranges": (4, [("t1", 1, 6)], [("t1", 1, 3), ("t1", 3, 6)]),
    "SPARK-49259: N TopicPartition to N offset ranges": (
        20,
        [("t1", 1, 40), ("t2", 1, 50), ("t3", 1, 60)],
        [
            ("t1", 1, 20),
            ("t1", 20, 40),
            ("t2", 1, 17),
            ("t2", 17, 33),
            ("t2", 33, 50),
            ("t3", 1, 20),
            ("t3", 20, 40),
            ("t3", 40, 60),
        ],
    ),
}


@pytest.mark.parametrize(("ranges", "expected"), NO_LIMIT)
def test_each_non_empty_range_without_limits_is_one_task(ranges: list[Triple], expected: list[Triple]) -> None:
    assert split(ranges) == expected


@pytest.mark.parametrize("name", MIN_PARTITIONS)
def test_min_partitions_splits_ranges_as_in_the_connector(name: str) -> None:
    min_partitions, ranges, expected = MIN_PARTITIONS[name]
    assert split(ranges, min_partitions=min_partitions) == expected


@pytest.mark.parametrize("name", MAX_RECORDS)
def test_max_records_per_partition_splits_ranges_as_in_the_connector(name: str) -> None:
    max_records, ranges, expected = MAX_RECORDS[name]
    assert split(ranges, max_records_per_partition=max_records) == expected


def test_max_records_per_partition_takes_precedence_over_a_low_min_partitions() -> None:
    ranges = split([("t1", 1, 40)], min_partitions=1, max_records_per_partition=20)
    assert ranges == [("t1", 1, 20), ("t1", 20, 40)]


def test_high_min_partitions_splits_beyond_max_records_per_partition() -> None:
    ranges = split([("t1", 1, 40)], min_partitions=4, max_records_per_partition=20)
    assert ranges == [("t1", 1, 10), ("t1", 10, 20), ("t1", 20, 30), ("t1", 30, 40)]


def test_partition_is_left_as_max_records_cut_it_if_one_of_its_pieces_is_worth_one_part_only() -> None:
    # 5 of 11 offsets are worth 1.36 of 3 parts, 6 of them 1.64: the second alone would be cut in two. The connector's
    # own calculator gives the same.
    assert split([("t1", 0, 11)], min_partitions=3, max_records_per_partition=10) == [("t1", 0, 5), ("t1", 5, 11)]


def test_several_ranges_of_one_partition_are_split_independently() -> None:
    # As planning cuts a partition at its segments: the small last segment must not keep the large one whole.
    assert split([("t1", 0, 9), ("t1", 9, 10)], min_partitions=4) == [
        ("t1", 0, 3),
        ("t1", 3, 6),
        ("t1", 6, 9),
        ("t1", 9, 10),
    ]


def test_first_split_keeps_earliest_and_last_split_keeps_latest() -> None:
    whole = OffsetRange("t", 0, 0, 4, start_is_earliest=True, end_is_latest=True, from_earliest=True)
    first, middle, last = split_ranges([whole], min_partitions=3)
    assert (first.start, first.end, first.start_is_earliest, first.end_is_latest) == (0, 1, True, False)
    assert (middle.start, middle.end, middle.start_is_earliest, middle.end_is_latest) == (1, 2, False, False)
    assert (last.start, last.end, last.start_is_earliest, last.end_is_latest) == (2, 4, False, True)
    assert first.from_earliest
    assert middle.from_earliest
    assert last.from_earliest


def test_empty_range_with_a_late_bound_end_stays() -> None:
    empty = OffsetRange("t", 0, 7, 7, end_is_latest=True)
    full = OffsetRange("t", 1, 0, 4)
    assert split_ranges([empty, full], min_partitions=2, max_records_per_partition=100) == [
        empty,
        OffsetRange("t", 1, 0, 2),
        OffsetRange("t", 1, 2, 4),
    ]
    assert split_ranges([empty]) == [empty]


@pytest.mark.parametrize(
    ("limits", "option"),
    [({"max_records_per_partition": 1}, "maxRecordsPerPartition"), ({"min_partitions": 2**31 - 1}, "minPartitions")],
)
def test_more_tasks_than_a_driver_can_hold_are_refused(limits: dict[str, int], option: str) -> None:
    with pytest.raises(OptionError, match=rf"option '{option}' makes \d+ tasks of 2000000000 offsets"):
        split([("t1", 0, 2_000_000_000)], **limits)


ranges_of_partitions = st.lists(
    st.tuples(st.integers(0, 2**62), st.integers(0, 10_000)).map(lambda t: (t[0], t[0] + t[1])), max_size=6
)


@given(
    ranges=ranges_of_partitions,
    min_partitions=st.none() | st.integers(1, 50),
    max_records=st.none() | st.integers(100, 20_000),
)
def test_every_offset_is_in_exactly_one_task(
    ranges: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [OffsetRange("t", i, start, end) for i, (start, end) in enumerate(ranges)]
    parts = split_ranges(whole, min_partitions=min_partitions, max_records_per_partition=max_records)
    assert all(part.size > 0 for part in parts)
    for asked in whole:
        mine = [part for part in parts if part.partition == asked.partition]
        edges = [part.start for part in mine] + [asked.end]
        if asked.size:
            assert mine[0].start == asked.start
            assert [part.end for part in mine] == edges[1:]
        else:
            assert not mine
    if max_records:
        assert all(part.size <= max_records for part in parts)
