"""The stream reader under the calls of Spark's engine: what each batch holds, and what a restart makes of it.

Names in the words of KafkaMicroBatchSourceSuite, where they have a counterpart there.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import OptionError, UnknownPartition
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append, delete_first_segment, delete_partition, numbers
from tests.source.helpers.stream_driver import Checkpoint, Crash, Query


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Topic t: "0" to "9" on partition 0, "10" to "14" on 1."""
    append(tmp_path, "t", 0, numbers(0, 10), batch=1)
    append(tmp_path, "t", 1, numbers(10, 15), batch=1)
    return tmp_path


def test_earliest_reads_everything_once_and_then_new_records(two: Path) -> None:
    query = Query(two, startingOffsets="earliest")
    assert query.trigger() == [sorted(numbers(0, 15))]
    assert query.trigger() == []
    append(two, "t", 0, numbers(20, 25))
    assert query.trigger() == [numbers(20, 25)]
    assert query.checkpoint.offsets == ['{"t": {"0": 10, "1": 5}}', '{"t": {"0": 15, "1": 5}}']


def test_latest_is_the_default_and_reads_new_records(two: Path) -> None:
    query = Query(two)
    assert query.trigger() == [[]]
    assert query.trigger() == []
    append(two, "t", 1, numbers(20, 22))
    assert query.trigger() == [numbers(20, 22)]


@pytest.mark.parametrize("step", ["planning", "reading", "commit"])
def test_latest_survives_a_restart_before_the_first_commit(two: Path, step: str) -> None:
    query = Query(two, crash_before=step)
    with pytest.raises(Crash):
        query.trigger()
    append(two, "t", 0, numbers(20, 25))
    again = Query(two, checkpoint=query.checkpoint)
    assert again.trigger() == [[]]
    assert again.trigger() == [numbers(20, 25)]


@pytest.mark.parametrize("step", ["planning", "reading", "commit"])
@pytest.mark.parametrize("start", ["earliest", '{"t":{"0":0,"1":-2}}'])
def test_first_batch_that_was_not_committed_is_read_again_to_the_same_end(two: Path, step: str, start: str) -> None:
    query = Query(two, startingOffsets=start, crash_before=step)
    with pytest.raises(Crash):
        query.trigger()
    append(two, "t", 0, numbers(20, 25))
    again = Query(two, checkpoint=query.checkpoint, startingOffsets=start)
    assert again.trigger() == [sorted(numbers(0, 15))]
    assert again.trigger() == [numbers(20, 25)]


def test_starting_options_apply_to_a_new_query_only(two: Path) -> None:
    query = Query(two, startingOffsets="earliest")
    query.trigger()
    append(two, "t", 0, numbers(20, 25))
    assert Query(two, checkpoint=query.checkpoint, startingOffsets="latest").trigger() == [numbers(20, 25)]
    assert Query(two, checkpoint=query.checkpoint, startingTimestamp=0).trigger() == []


def test_specific_offsets_may_include_earliest_and_latest(two: Path) -> None:
    append(two, "t", 2, numbers(30, 34))
    query = Query(two, startingOffsets='{"t":{"0":7,"1":-1,"2":-2}}')
    assert query.trigger() == [["30", "31", "32", "33", "7", "8", "9"]]
    append(two, "t", 1, numbers(20, 21))
    assert query.trigger() == [["20"]]


def test_specific_offsets_must_name_every_partition(two: Path) -> None:
    for given in ('{"t":{"0":7}}', '{"t":{"0":7,"1":0,"2":0}}', '{"t":{"0":7,"1":0},"u":"latest"}'):
        with pytest.raises(OptionError, match="If startingOffsets contains specific offsets, you must specify all Top"):
            Query(two, startingOffsets=given).trigger()


def test_starting_timestamp_starts_at_the_first_offset_at_or_after_it(two: Path) -> None:
    query = Query(two, startingTimestamp=FIRST_TIMESTAMP + 3)
    assert query.trigger() == [sorted([*numbers(3, 10), *numbers(13, 15)])]
    by_partition = json.dumps({"t": {"0": FIRST_TIMESTAMP + 8, "1": FIRST_TIMESTAMP + 4}})
    assert Query(two, startingOffsetsByTimestamp=by_partition).trigger() == [["14", "8", "9"]]


def test_starting_timestamp_without_a_match_fails_or_starts_at_latest(two: Path) -> None:
    options: dict[str, Any] = {"startingTimestamp": FIRST_TIMESTAMP + 7}
    with pytest.raises(OptionError, match="No offset matched from request of topic-partition t-1 and timestamp"):
        Query(two, **options).trigger()
    query = Query(two, startingOffsetsByTimestampStrategy="latest", crash_before="planning", **options)
    with pytest.raises(Crash):
        query.trigger()
    append(two, "t", 1, numbers(20, 30))  # with timestamps that match: the restart looks them up again
    again = Query(two, checkpoint=query.checkpoint, startingOffsetsByTimestampStrategy="latest", **options)
    assert again.trigger() == [["7", "8", "9"]]
    assert again.trigger() == [numbers(20, 30)]


def test_max_offsets_per_trigger_limits_batches_except_trigger_once(tmp_path: Path) -> None:
    for partition, count in enumerate((101, 11, 1)):
        append(tmp_path, "t", partition, numbers(0, count))
    query = Query(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    query.trigger()
    assert query.end == {"t": {"0": 8, "1": 1, "2": 1}}
    query.trigger()
    assert query.end == {"t": {"0": 17, "1": 2, "2": 1}}
    again = Query(tmp_path, checkpoint=query.checkpoint, maxOffsetsPerTrigger=10)
    again.trigger()
    assert again.end == {"t": {"0": 26, "1": 3, "2": 1}}
    once = Query(tmp_path, checkpoint=query.checkpoint, maxOffsetsPerTrigger=10, trigger_kind="once")
    assert [len(batch) for batch in once.trigger()] == [101 - 26 + 11 - 3]
    assert once.end == {"t": {"0": 101, "1": 11, "2": 1}}


def test_min_offsets_per_trigger_waits_for_enough(two: Path) -> None:
    query = Query(two, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    assert len(query.trigger()[0]) == 15
    append(two, "t", 0, numbers(20, 24))
    assert query.trigger() == []
    append(two, "t", 1, numbers(24, 25))
    assert query.trigger() == [numbers(20, 25)]


def test_min_and_max_offsets_per_trigger_both_hold(two: Path) -> None:
    query = Query(two, startingOffsets="earliest", minOffsetsPerTrigger=3, maxOffsetsPerTrigger=6)
    assert [len(query.trigger()[0]) for _ in range(2)] == [6, 6]
    assert len(query.trigger()[0]) == 3
    append(two, "t", 0, numbers(20, 22))
    assert query.trigger() == []


def test_max_trigger_delay_begins_with_the_last_batch(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000
    query = Query(two, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="10s")
    monkeypatch.setattr(query.reader.planner._delay, "_clock_ms", lambda: now)
    query.trigger()
    append(two, "t", 0, numbers(20, 22))
    now += 9_999
    assert query.trigger() == []
    now += 1
    assert query.trigger() == [numbers(20, 22)]


def test_available_now_reads_existing_records_in_capped_batches_only(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 15))
    options: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5, "trigger_kind": "availableNow"}
    query = Query(tmp_path, **options)
    append(tmp_path, "t", 0, numbers(15, 17))
    first = query.batch()
    assert first is not None
    append(tmp_path, "t", 0, numbers(17, 20))
    append(tmp_path, "t", 1, numbers(20, 25))
    append(tmp_path, "t", 2, numbers(30, 40), batch=5, segment_bytes=150)
    delete_first_segment(tmp_path, "t", 2)  # data loss for who reads it
    assert [first.num_rows, *(len(batch) for batch in query.trigger())] == [5, 5, 5]
    assert query.end == {"t": {"0": 15}}
    assert query.trigger() == []
    delete_partition(tmp_path, "t", 2)
    again = Query(tmp_path, checkpoint=query.checkpoint, **options)
    assert sorted(chain.from_iterable(again.trigger())) == numbers(15, 25)
    assert again.end == {"t": {"0": 20, "1": 5}}


def test_available_now_does_not_wait_for_min_offsets(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 12))
    query = Query(
        tmp_path,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=5,
        minOffsetsPerTrigger=5,
        trigger_kind="availableNow",
    )
    assert [len(batch) for batch in query.trigger()] == [5, 5, 2]


@pytest.mark.parametrize("step", ["planning", "reading", "commit"])
def test_available_now_ends_after_a_restart_onto_an_uncommitted_batch(tmp_path: Path, step: str) -> None:
    append(tmp_path, "t", 0, numbers(0, 12))
    options: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5, "trigger_kind": "availableNow"}
    query = Query(tmp_path, **options)
    query.batch()
    query.crash_before = step
    with pytest.raises(Crash):
        query.trigger()
    append(tmp_path, "t", 1, numbers(12, 14))
    again = Query(tmp_path, checkpoint=query.checkpoint, **options)
    assert sorted(chain.from_iterable(again.trigger())) == sorted(numbers(5, 14))


def test_available_now_from_latest_reads_nothing_and_the_next_run_reads_new_records(two: Path) -> None:
    query = Query(two, trigger_kind="availableNow")
    append(two, "t", 0, numbers(20, 25))
    assert query.trigger() == [[]]
    assert Query(two, checkpoint=query.checkpoint, trigger_kind="availableNow").trigger() == [numbers(20, 25)]


def test_new_partitions_and_topics_are_read_from_earliest(two: Path) -> None:
    query = Query(two, subscribePattern="^t")
    query.trigger()
    append(two, "t", 2, numbers(20, 22))
    append(two, "topic2", 0, numbers(22, 24))
    append(two, "unread", 0, numbers(24, 26))
    assert query.trigger() == [numbers(20, 24)]
    assert query.end == {"t": {"0": 10, "1": 5, "2": 2}, "topic2": {"0": 2}}
    append(two, "t2", 0, numbers(26, 28))
    assert Query(two, checkpoint=query.checkpoint, subscribePattern="^t").trigger() == [numbers(26, 28)]


def test_assigned_partition_is_the_only_one_read(two: Path) -> None:
    query = Query(two, assign='{"t":[1,7]}', startingOffsets="earliest")
    assert query.trigger() == [numbers(10, 15)]
    assert query.end == {"t": {"1": 5}}


def test_pattern_without_topics_waits_for_them(two: Path) -> None:
    query = Query(two, subscribePattern="^new")
    assert query.trigger() == [[]]
    assert query.trigger() == []
    append(two, "news", 0, numbers(0, 3))
    assert query.trigger() == [numbers(0, 3)]


def test_topic_that_never_existed_is_refused(two: Path) -> None:
    with pytest.raises(UnknownPartition, match="the log directory holds no topic u"):
        Query(two, subscribe="t,u").trigger()


def test_several_log_directories_are_read_as_one_log(tmp_path: Path) -> None:
    append(tmp_path / "a", "t", 0, numbers(0, 3))
    append(tmp_path / "b", "t", 1, numbers(3, 6))
    query = Query(tmp_path / "a", tmp_path / "b", startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 6)]
    append(tmp_path / "b", "t", 2, numbers(6, 8))
    assert query.trigger() == [numbers(6, 8)]


def test_stream_splits_tasks_like_a_batch(two: Path) -> None:
    query = Query(two, startingOffsets="earliest", minPartitions=6)
    query.trigger()
    assert len(query.planned) >= 6
    query = Query(two, startingOffsets="earliest", maxRecordsPerPartition=4)
    assert query.trigger() == [sorted(numbers(0, 15))]
    assert [(split.range.partition, split.range.size) for split in query.planned] == [
        (0, 3), (0, 3), (0, 4), (1, 2), (1, 3),
    ]  # fmt: skip


def test_user_schema_and_columns_option_select_columns(two: Path) -> None:
    query = Query(two, startingOffsets="earliest", columns="offset")
    batch = query.batch()
    assert batch is not None
    assert batch.column_names == ["offset"]
    assert sorted(batch["offset"].to_pylist()) == sorted([*range(10), *range(5)])


def test_consecutive_batches_are_contiguous(two: Path) -> None:
    query = Query(two, startingOffsets="earliest")
    query.trigger()
    size = (two / "t-0" / f"{0:020d}.log").stat().st_size
    append(two, "t", 0, numbers(20, 25))
    query.trigger()
    assert [split.hint for split in query.planned] == [(0, size)]
    append(two, "t", 0, numbers(25, 30), roll_first=True)
    assert query.trigger() == [numbers(25, 30)]


def test_wrong_position_hint_loses_no_row(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(two, startingOffsets="earliest")
    query.trigger()
    append(two, "t", 0, numbers(20, 25))
    planner = query.reader.planner
    for wrong in (0, 3, 10**9):
        monkeypatch.setattr(
            planner,
            "_ends",
            {tp: tuple(e._replace(position=wrong) for e in ends) for tp, ends in planner._ends.items()},
        )
        before = Checkpoint(list(query.checkpoint.offsets), query.checkpoint.committed)
        assert query.trigger() == [numbers(20, 25)]
        query.checkpoint = before


def test_options_refused_by_a_stream_fail_at_its_start(two: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1}}'}, "ending timestamp not valid in streaming queries"),
        ({"maxBytesPerTrigger": "lots"}, "option 'maxBytesPerTrigger' must be a size such as 134217728, 128m or 1g"),
    ]
    for given, message in refused:
        with pytest.raises(OptionError, match=message):
            Query(two, **given)


_AT = json.dumps({"t": {"0": FIRST_TIMESTAMP + 9, "1": FIRST_TIMESTAMP + 4}})


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": "earliest"}, sorted(numbers(0, 15))),
        ({"startingOffsets": '{"t":{"0":8,"1":-1}}'}, ["8", "9"]),
        ({"startingOffsetsByTimestamp": _AT}, ["14", "9"]),
        ({"startingTimestamp": FIRST_TIMESTAMP + 4}, sorted([*numbers(4, 10), "14"])),
    ],
    ids=["latest", "earliest", "offsets", "timestamps", "one timestamp"],
)
@pytest.mark.parametrize("by", [{"assign": '{"t":[0,1]}'}, {"subscribe": "t"}, {"subscribePattern": "^t$"}], ids=str)
def test_every_subscription_works_with_every_starting_option(
    two: Path, by: dict[str, Any], start: dict[str, Any], first: list[str], fail: bool
) -> None:
    query = Query(two, failOnDataLoss=fail, **by, **start)
    assert query.trigger() == [first]
    append(two, "t", 0, numbers(20, 22))
    append(two, "t", 1, numbers(22, 24))
    append(two, "other", 0, numbers(24, 26))
    assert query.trigger() == [numbers(20, 24)]
    append(two, "t", 2, numbers(30, 32))
    assert query.trigger() == ([] if "assign" in by else [numbers(30, 32)])
