"""A planned query run again on a log that has changed: what is bound late, what is lost, what is found again."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from kafkalog_spark.errors import DataLoss, NotALogDirectory, OffsetOutOfRange
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import (
    FIRST_TIMESTAMP,
    MadeBatch,
    append,
    delete_first_segment,
    delete_partition,
    numbers,
    write_batches,
)

OFFSET, TIMESTAMP, PARTITION = ("offset",), ("timestamp",), ("partition",)


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def offsets(table: pa.Table) -> list[int]:
    return table["offset"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "options", [{}, {"maxPartitionBytes": 1}, {"minPartitions": 9}, {"isolationLevel": "read_committed"}]
)
@pytest.mark.parametrize("roll", [False, True])
def test_second_action_sees_rows_appended_meanwhile(three: Path, options: dict[str, object], roll: bool) -> None:
    scan = Load(three, **options).scan()
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 110)
    append(three, "t", 0, numbers(30, 40), roll_first=roll)
    append(three, "t", 1, numbers(110, 120), roll_first=roll)
    assert values(scan.read()) == numbers(0, 40) + numbers(100, 120)


def test_second_action_sees_rows_appended_to_an_empty_partition(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, [])
    scan = Load(tmp_path).scan()
    assert scan.read().num_rows == 0
    append(tmp_path, "t", 0, ["a"])
    assert values(scan.read()) == ["a"]


def test_explicit_end_does_not_move(three: Path) -> None:
    scan = Load(three, endingOffsets='{"t":{"0":30,"1":-1}}').scan()
    append(three, "t", 0, ["30"])
    append(three, "t", 1, ["110"])
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 111)


def test_end_by_timestamp_does_not_move(three: Path) -> None:
    scan = Load(three, endingTimestamp=FIRST_TIMESTAMP + 10**6).scan()
    append(three, "t", 0, ["30"])
    assert values(scan.read()) == numbers(0, 30) + numbers(100, 110)


@pytest.mark.parametrize("options", [{}, {"maxPartitionBytes": 1}, {"minPartitions": 9}])
def test_retention_between_two_actions_moves_earliest(three: Path, options: dict[str, object]) -> None:
    scan = Load(three, **options).scan()
    assert len(values(scan.read())) == 40
    delete_first_segment(three, "t", 0)
    assert values(scan.read()) == numbers(10, 30) + numbers(100, 110)
    delete_first_segment(three, "t", 0)
    assert values(scan.read()) == numbers(20, 30) + numbers(100, 110)


def test_retention_after_an_explicit_start_is_data_loss(three: Path) -> None:
    options = {"startingOffsets": '{"t":{"0":5,"1":-2}}', "maxPartitionBytes": 1}
    scan = Load(three, **options).scan()
    forgiving = Load(three, failOnDataLoss=False, **options).scan()
    assert values(scan.read()) == numbers(5, 30) + numbers(100, 110)
    delete_first_segment(three, "t", 0)
    with pytest.raises(DataLoss, match=r"t-0.*\[5, 10\) for topic partition t-0: the log begins at offset 10"):
        scan.read()
    assert values(forgiving.read()) == numbers(10, 30) + numbers(100, 110)


def test_fail_on_data_loss_false_logs_the_loss(three: Path, caplog: pytest.LogCaptureFixture) -> None:
    scan = Load(three, failOnDataLoss=False, startingOffsets='{"t":{"0":5,"1":-2}}').scan()
    delete_first_segment(three, "t", 0)
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        scan.read()
    assert any("t-0" in record.getMessage() and "[5, 30)" in record.getMessage() for record in caplog.records)


@pytest.mark.local_only("messages and plans name local paths")
def test_topic_deleted_after_planning_is_an_error(three: Path) -> None:
    scan = Load(three).scan()
    delete_partition(three, "t", 0)
    with pytest.raises(NotALogDirectory, match=r"t-0.*cannot be read: No such file"):
        scan.read()


def test_topic_deleted_after_planning_is_skipped_with_fail_on_data_loss_false(three: Path) -> None:
    scan = Load(three, failOnDataLoss=False).scan()
    everything = values(scan.read())
    delete_partition(three, "t", 0)
    left = values(scan.read())
    assert left
    assert left == [value for value in everything if value in left]
    assert len(left) < len(everything)


@pytest.mark.local_only("replaces a call of os")
@pytest.mark.parametrize("while_planning", [True, False])
def test_partition_deleted_before_its_end_is_found_is_skipped_with_fail_on_data_loss_false(
    three: Path, while_planning: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(three, failOnDataLoss=False)
    scan = None if while_planning else load.scan()
    original = PartitionLog.open_segment

    def deleted_first(self: PartitionLog, index: int) -> SegmentFile:
        if self.name == "t-0" and Path(self.directory).exists():
            delete_partition(three, "t", 0)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", deleted_first)
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        assert values((scan or load.scan()).read()) == numbers(100, 110)
    assert [record.getMessage() for record in caplog.records] == [
        f"t-0 {three / 't-0'}: the partition's directory cannot be read: No such file or directory"
    ]


def test_partition_deleted_before_its_end_is_found_is_an_error(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Load(three).scan()
    original = PartitionLog.open_segment

    def deleted_first(self: PartitionLog, index: int) -> SegmentFile:
        delete_partition(three, self.topic, self.partition)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", deleted_first)
    with pytest.raises(NotALogDirectory, match=r"t-0.*cannot be read: No such file"):
        scan.read()


def test_partition_deleted_while_it_is_read_gives_the_rows_read_so_far(
    three: Path, caplog: pytest.LogCaptureFixture
) -> None:
    big = numbers(0, 3000)
    append(three, "u", 0, big, batch=100)
    append(three, "u", 0, ["unread"], roll_first=True)
    for options in ({"failOnDataLoss": False}, {}):
        (task,) = Load(three, subscribe="u", **options).scan().tasks()
        read = [next(task)]
        os.rename(three / "u-0", three / "u-0.0123456789abcdef0123456789abcdef-delete")
        if options:
            with caplog.at_level(logging.WARNING, "kafkalog_spark"):
                read += task
            assert values(pa.Table.from_batches(read)) == big
            assert "u-0" in caplog.text
            assert "records in [3000, 3001) are gone" in caplog.text
            os.rename(three / "u-0.0123456789abcdef0123456789abcdef-delete", three / "u-0")
        else:
            with pytest.raises(DataLoss, match=r"records in \[3000, 3001\) are gone"):
                read += task


def test_topic_recreated_after_planning_is_not_read_as_the_old_one(three: Path) -> None:
    scan = Load(three, startingOffsets='{"t":{"0":5,"1":-2}}').scan()
    delete_partition(three, "t", 0)
    append(three, "t", 0, numbers(0, 3))
    with pytest.raises(OffsetOutOfRange, match="start offset 5 is greater than the resolved end offset 3"):
        scan.read()


def test_cleaned_segment_is_read_when_the_planned_position_is_stale(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 100))
    append(tmp_path, "t", 0, ["last"], roll_first=True)
    scan = Load(tmp_path, maxPartitionBytes=400).scan()
    assert any(split.hint and split.hint[1] for split in scan.splits)
    # what the cleaner leaves: offsets stay, batches are others, positions move
    other = tmp_path / "other"
    kept = [MadeBatch([str(i)], [FIRST_TIMESTAMP], gap=2) for i in range(2, 100, 3)]
    write_batches(other, "t", 0, kept)
    for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"):
        os.replace(other / "t-0" / name, tmp_path / "t-0" / name)
    assert values(scan.read()) == [*(str(i) for i in range(2, 100, 3)), "last"]


def test_planned_position_of_a_later_batch_skips_no_record(tmp_path: Path) -> None:
    batches = [
        MadeBatch([f"{i:03}" for i in range(at_, at_ + 10)], [FIRST_TIMESTAMP] * 10) for at_ in range(0, 100, 10)
    ]
    write_batches(tmp_path, "t", 0, batches)
    scan = Load(tmp_path, maxPartitionBytes=1, minPartitions=1).scan()
    assert len(scan.splits) > 5
    # all batches are of one size: without the first two, each of the others lies where an earlier one was
    other = tmp_path / "other"
    write_batches(other, "t", 0, [replace(batches[2], gap=20), *batches[3:]])
    for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"):
        os.replace(other / "t-0" / name, tmp_path / "t-0" / name)
    assert offsets(scan.read()) == [*range(20, 100)]


def test_pushed_filter_beyond_the_log_end_is_empty_until_rows_are_appended(three: Path) -> None:
    for options in ({}, {"startingOffsets": '{"t":{"0":5,"1":-2}}'}):
        scan = Load(three, pushdown=True, **options).scan(GreaterThanOrEqual(OFFSET, 33), EqualTo(PARTITION, 0))
        assert scan.read().num_rows == 0
    append(three, "t", 0, numbers(30, 40))
    assert values(scan.read()) == numbers(33, 40)


def test_pushed_end_beyond_the_log_end_applies_to_appended_rows(three: Path) -> None:
    scan = Load(three, pushdown=True).scan(LessThan(OFFSET, 33), EqualTo(PARTITION, 0))
    assert values(scan.read()) == numbers(0, 30)
    append(three, "t", 0, numbers(30, 40))
    assert values(scan.read()) == numbers(0, 33)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transaction_opened_after_planning_is_not_read_committed(three: Path, isolation: str) -> None:
    scan = Load(three, isolationLevel=isolation, assign='{"t":[0]}').scan()
    opened = MadeBatch(["open"], [FIRST_TIMESTAMP], producer_id=7)
    write_batches(three, "t", 0, [MadeBatch(["30"], [FIRST_TIMESTAMP]), opened, MadeBatch(["32"], [FIRST_TIMESTAMP])])
    behind = ["open", "32"] if isolation == "read_uncommitted" else []
    assert values(scan.read()) == [*numbers(0, 31), *behind]
