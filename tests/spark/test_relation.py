"""Spark's KafkaRelationSuite in spirit: offsets, timestamps, late binding and bad options, through real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append, delete_first_segment, numbers
from tests.spark.helpers.loads import fails, load, values


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


def test_default_offsets_are_earliest_and_latest(spark: Any, topic: Path) -> None:
    assert values(load(spark, topic, subscribe="t")) == numbers(0, 21)


def test_explicit_offsets_late_bind_only_where_they_say_so(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", startingOffsets=offsets(-2, 4, 0), endingOffsets=offsets(-1, 10, 1))
    assert values(df) == [*numbers(0, 10), *numbers(14, 20), "20"]
    append(topic, "t", 0, ["a", "b"])
    append(topic, "t", 1, ["c"])
    append(topic, "t", 2, ["d"])
    assert values(df) == [*numbers(0, 10), "a", "b", *numbers(14, 20), "20"]


def test_earliest_start_is_late_bound(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", startingOffsets="earliest")
    assert len(values(df)) == 21
    assert delete_first_segment(topic, "t", 1) == 5
    assert values(df) == [*numbers(0, 10), *numbers(15, 20), "20"]


def test_dataframe_used_twice_in_a_query_reads_the_same_rows(spark: Any, topic: Path) -> None:
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
        ({"startingTimestamp": FIRST_TIMESTAMP + 1, "endingTimestamp": FIRST_TIMESTAMP + 2}, ["1", "11", "21"]),
    ],
    ids=["by partition", "global"],
)
def test_timestamp_bounds_read_the_expected_records(
    spark: Any, timed: Path, options: dict[str, Any], expected: list[str]
) -> None:
    """All combinations: tests/source/test_timestamp_bounds_read_the_expected_records.py."""
    assert values(load(spark, timed, subscribe="t", **options)) == expected


def test_start_timestamp_without_a_match_is_an_error(spark: Any, timed: Path) -> None:
    with fails() as failure:
        load(spark, timed, subscribe="t", startingTimestamp=FIRST_TIMESTAMP + 10).count()
    assert (
        f"No offset matched from request of topic-partition t-0 and timestamp {FIRST_TIMESTAMP + 10}." in failure.line
    )


def test_min_partitions_splits_tasks_and_a_second_action_sees_new_rows(spark: Any, topic: Path) -> None:
    df = load(spark, topic, subscribe="t", minPartitions=6)
    assert df.rdd.getNumPartitions() >= 6
    assert values(df) == numbers(0, 21)
    append(topic, "t", 2, numbers(21, 25))
    assert values(df) == numbers(0, 25)


def test_max_records_per_partition_splits_tasks(spark: Any, timed: Path) -> None:
    df = load(spark, timed, subscribe="t", maxRecordsPerPartition=4)
    assert df.rdd.getNumPartitions() == 9
    assert values(df) == numbers(0, 30)


def test_option_invalid_only_for_batches_fails_the_first_query(spark: Any, tmp_path: Path) -> None:
    """A stream may start at `latest`, and Spark does not say at load() which of the two it is."""
    (tmp_path / "t-0").mkdir()
    df = load(spark, tmp_path, subscribe="t", startingOffsets="latest")
    with fails() as failure:
        df.count()
    assert failure.line.startswith("starting offset can't be latest for batch queries on Kafka")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startOffsets": "earliest"}, "unknown option 'startoffsets'; did you mean 'startingOffsets'?"),
    ],
    ids=["the connector's words", "ours"],
)
def test_bad_options_are_refused_at_load(spark: Any, tmp_path: Path, options: dict[str, str], expected: str) -> None:
    """All of them: tests/source/test_bad_options.py."""
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
        ({"subscribe": "t,u"}, "the log directory holds no topic u; it holds t"),
    ],
    ids=["the connector's words", "ours"],
)
def test_options_that_do_not_fit_the_log_are_refused_during_planning(
    spark: Any, timed: Path, options: dict[str, Any], expected: str
) -> None:
    """All of it: tests/source/test_reader_errors.py and test_bounds.py."""
    with fails() as failure:
        load(spark, timed, **{"subscribe": "t", **options}).count()
    assert failure.line.startswith(expected)


def test_data_loss_between_two_actions_fails_or_is_skipped(spark: Any, topic: Path) -> None:
    options: dict[str, Any] = {"subscribe": "t", "startingOffsets": offsets(0, 2, 0)}
    strict = load(spark, topic, **options)
    forgiving = load(spark, topic, failOnDataLoss="false", **options)
    assert values(strict) == values(forgiving) == [*numbers(0, 10), *numbers(12, 21)]
    delete_first_segment(topic, "t", 1)
    with fails() as failure:
        values(strict)
    assert failure.line.startswith("t-1 (offset 2): Some data may have been lost")
    assert values(forgiving) == [*numbers(0, 10), *numbers(15, 21)]
