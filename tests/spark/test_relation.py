"""Spark's KafkaRelationSuite in spirit: offsets, timestamps, late binding and bad options, through real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.source.made_logs import FIRST_TIMESTAMP, append, delete_first_segment, numbers
from tests.spark.loads import fails, load, values


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """t-0: "0".."9", t-1: "10".."19" (in two segments), t-2: "20"."""
    append(tmp_path, "t", 0, numbers(0, 10))
    append(tmp_path, "t", 1, numbers(10, 15))
    append(tmp_path, "t", 1, numbers(15, 20), roll_first=True)
    append(tmp_path, "t", 2, ["20"])
    return tmp_path


def offsets(*numbers_: int) -> str:
    return json.dumps({"t": {str(partition): number for partition, number in enumerate(numbers_)}})


def test_earliest_to_latest_sees_new_rows_in_a_second_action(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", startingOffsets="earliest", endingOffsets="latest")
    assert values(df) == numbers(0, 21)
    append(topic, "t", 2, numbers(21, 30))
    assert values(df) == numbers(0, 30)


def test_default_starting_and_ending_offsets(spark: Any, topic: Path) -> None:
    assert values(load(spark, topic, subscribe="t")) == numbers(0, 21)


def test_explicit_offsets_late_bind_only_where_they_say_so(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", startingOffsets=offsets(-2, 4, 0), endingOffsets=offsets(-1, 10, 1))
    assert values(df) == [*numbers(0, 10), *numbers(14, 20), "20"]
    append(topic, "t", 0, ["a", "b"])
    append(topic, "t", 1, ["c"])
    append(topic, "t", 2, ["d"])
    assert values(df) == [*numbers(0, 10), "a", "b", *numbers(14, 20), "20"]


def test_the_start_is_bound_late_too(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", startingOffsets="earliest")
    assert len(values(df)) == 21
    assert delete_first_segment(topic, "t", 1) == 5
    assert values(df) == [*numbers(0, 10), *numbers(15, 20), "20"]


def test_the_same_dataframe_twice_in_a_query(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t")
    assert values(df.union(df)) == sorted(numbers(0, 21) * 2, key=int)


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t-0, t-1, t-2: "0".."9", "10".."19", "20".."29"; the records of a partition have FIRST_TIMESTAMP, + 1, ... ms."""
    path = tmp_path_factory.mktemp("timed")
    for partition in range(3):
        append(path, "t", partition, numbers(partition * 10, partition * 10 + 10))
    return path


def at(*later: int) -> str:
    return offsets(*(FIRST_TIMESTAMP + ms for ms in later))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsetsByTimestamp": at(3, 0, 9), "endingOffsetsByTimestamp": at(5, 2, 10**6)},
            [*numbers(3, 5), *numbers(10, 12), "29"],
        ),
        ({"startingOffsetsByTimestamp": at(9, 8, 7)}, ["9", "18", "19", "27", "28", "29"]),
        ({"endingOffsetsByTimestamp": at(1, 0, 2)}, ["0", "20", "21"]),
        ({"startingOffsetsByTimestamp": at(8, 9, 9), "endingOffsets": offsets(9, 10, -1)}, ["8", "19", "29"]),
        ({"startingOffsets": offsets(-2, 1, 2), "endingOffsetsByTimestamp": at(1, 2, 3)}, ["0", "11", "22"]),
        ({"startingTimestamp": FIRST_TIMESTAMP + 8}, ["8", "9", "18", "19", "28", "29"]),
        ({"startingTimestamp": FIRST_TIMESTAMP + 1, "endingTimestamp": FIRST_TIMESTAMP + 2}, ["1", "11", "21"]),
        # no match: the end of the log, for an end always and for a start when asked for
        ({"startingTimestamp": FIRST_TIMESTAMP + 9, "endingTimestamp": FIRST_TIMESTAMP + 10**6}, ["9", "19", "29"]),
        (
            {"startingOffsetsByTimestamp": at(9, 10, 10), "startingOffsetsByTimestampStrategy": "latest"},
            ["9"],
        ),
        # what goes before what
        (
            {
                "startingTimestamp": FIRST_TIMESTAMP + 9,
                "startingOffsetsByTimestamp": at(5, 5, 5),
                "startingOffsets": "earliest",
                "endingTimestamp": FIRST_TIMESTAMP + 10,
                "endingOffsetsByTimestamp": at(1, 1, 1),
                "endingOffsets": offsets(2, 2, 2),
            },
            ["9", "19", "29"],
        ),
        (
            {"startingOffsetsByTimestamp": at(9, 9, 9), "startingOffsets": offsets(1, 1, 1)},
            ["9", "19", "29"],
        ),
    ],
    ids=[
        "both by timestamp",
        "start only",
        "end only",
        "start by timestamp, end by offset",
        "start by offset, end by timestamp",
        "global start",
        "global both",
        "no match at the end",
        "no match at the start, latest",
        "global timestamp goes first",
        "timestamps go before offsets",
    ],
)
def test_bounds_by_timestamp(spark: Any, timed: Path, options: dict[str, Any], expected: list[str]) -> None:
    assert values(load(spark, timed, subscribe="t", **options)) == expected


def test_a_start_timestamp_without_a_match_is_an_error(spark: Any, timed: Path) -> None:
    with fails() as failure:
        load(spark, timed, subscribe="t", startingTimestamp=FIRST_TIMESTAMP + 10).count()
    assert (
        f"No offset matched from request of topic-partition t-0 and timestamp {FIRST_TIMESTAMP + 10}." in failure.line
    )


def test_min_partitions_and_a_second_action_on_its_tasks(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", minPartitions=6)
    assert df.rdd.getNumPartitions() >= 6
    assert values(df) == numbers(0, 21)
    append(topic, "t", 2, numbers(21, 25))
    assert values(df) == numbers(0, 25)


def test_max_records_per_partition(spark: Any, timed: Path) -> None:
    df = load(spark, timed, subscribe="t", maxRecordsPerPartition=4)
    assert df.rdd.getNumPartitions() == 9
    assert values(df) == numbers(0, 30)


BAD_FOR_A_BATCH = [
    ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest for batch queries on Kafka"),
]
"""A stream may start there, and Spark does not say at load() which of the two it is."""

BAD_AT_LOAD = [
    ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries on Kafka"),
    ({"startingOffsets": '{"t":'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {"t":'),
    ({"startingOffsetsByTimestamp": "tomorrow"}, 'Expected e.g. {"topicA": {"0": 123456789'),
    ({"startingTimestamp": "tomorrow"}, "Expected a single long value, got tomorrow"),
    ({"assign": '{"t":[0]}'}, "Only one of the following options can be specified for Kafka source"),
    ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
    ({"minPartitions": "0"}, "minPartitions must be positive"),
    ({"minPartitions": "1.0"}, 'For input string: "1.0"'),
    ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
    ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported."),
    ({"isolationLevel": "serializable"}, "option 'isolationLevel' must be one of read_uncommitted, read_committed"),
    ({"startOffsets": "earliest"}, "unknown option 'startoffsets'; did you mean 'startingOffsets'?"),
    (
        {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":0}}'},
        "t-0: The specified start offset 1 is greater than the end offset 0 for topic t partition 0.",
    ),
    (
        {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
        "The specified start offset and end offset should have the same topic-partitions.",
    ),
]


@pytest.mark.parametrize(("options", "expected"), BAD_FOR_A_BATCH, ids=lambda value: str(value)[:50])
def test_options_that_only_a_batch_refuses_are_refused_by_its_first_query(
    spark: Any, tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    (tmp_path / "t-0").mkdir()
    df = load(spark, tmp_path, **{"subscribe": "t", **options})
    with fails() as failure:
        df.count()
    assert failure.line.startswith(expected)


@pytest.mark.parametrize(("options", "expected"), BAD_AT_LOAD, ids=lambda value: str(value)[:50])
def test_bad_options_are_refused_at_load(spark: Any, tmp_path: Path, options: dict[str, str], expected: str) -> None:
    with fails() as failure:
        load(spark, tmp_path, **{"subscribe": "t", **options})
    assert failure.line.startswith(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": '{"t":{"0":0,"1":0}}'},
            "Partitions specified for Kafka start offsets don't match what are assigned.",
        ),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":0,"1":0,"2":0,"3":0}}'},
            "Partitions specified for Kafka timestamp based end offsets don't match what are assigned.",
        ),
        (
            {"startingOffsets": offsets(11, 0, 0)},
            "t-0 (offset 11): The resolved start offset 11 is greater than the resolved end offset 10 for topic t",
        ),
        ({"endingOffsets": offsets(11, 1, 1)}, "t-0 (offset 10): Some data may have been lost"),
        ({"subscribe": "t,u"}, "the log directory holds no topic u; it holds t"),
    ],
    ids=["start sets", "end sets", "resolved start after end", "end after the log's", "unknown topic"],
)
def test_what_does_not_fit_the_log_is_refused_when_planning(
    spark: Any, timed: Path, options: dict[str, Any], expected: str
) -> None:
    with fails() as failure:
        load(spark, timed, **{"subscribe": "t", **options}).count()
    assert failure.line.startswith(expected)


def test_data_loss_between_two_actions_fails_or_is_passed_over(spark: Any, topic: Path) -> None:
    options: dict[str, Any] = {"subscribe": "t", "startingOffsets": offsets(0, 2, 0)}
    strict = load(spark, topic, **options)
    forgiving = load(spark, topic, failOnDataLoss="false", **options)
    assert values(strict) == values(forgiving) == [*numbers(0, 10), *numbers(12, 21)]
    delete_first_segment(topic, "t", 1)
    with fails() as failure:
        values(strict)
    assert failure.line.startswith("t-1 (offset 2): Some data may have been lost")
    assert values(forgiving) == [*numbers(0, 10), *numbers(15, 21)]
