"""Retention while a task reads: what `earliest` means then, and what is data loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import append, delete_first_segment, numbers

Retention = Callable[[int, int], None]


@pytest.fixture
def retention(three: Path, monkeypatch: pytest.MonkeyPatch) -> Retention:
    """`retention(base_offset, segments)`: just before t-0's segment with that base offset is opened, once, the first
    so many segments are deleted."""
    original = PartitionLog.open_segment

    def arm(base_offset: int, segments: int) -> None:
        armed = [segments]

        def spy(self: PartitionLog, index: int) -> SegmentFile:
            if self.name == "t-0" and self.segments[index].base_offset == base_offset and armed:
                for _ in range(armed.pop()):
                    delete_first_segment(three, "t", 0)
            return original(self, index)

        monkeypatch.setattr(PartitionLog, "open_segment", spy)

    return arm


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("start", ["earliest", '{"t":{"0":-2,"1":-2}}'])
@pytest.mark.parametrize(("before_opening", "segments"), [(0, 1), (0, 2), (10, 2)])
def test_earliest_follows_the_log_start_until_the_first_row_is_yielded(
    three: Path,
    retention: Retention,
    caplog: pytest.LogCaptureFixture,
    fail_on_data_loss: bool,
    start: str,
    before_opening: int,
    segments: int,
) -> None:
    scan = Load(three, startingOffsets=start, failOnDataLoss=fail_on_data_loss).scan()
    retention(before_opening, segments)
    assert values(scan.read()) == numbers(10 * segments, 30) + numbers(100, 110)
    assert caplog.messages == []


def test_split_from_earliest_that_retention_overtakes_is_empty(three: Path, retention: Retention) -> None:
    scan = Load(three, maxPartitionBytes=1).scan()
    assert [split.range.start for split in scan.splits] == [0, 10, 20, 0]
    retention(10, 2)
    assert values(scan.read()) == [*numbers(0, 10), *numbers(20, 30), *numbers(100, 110)]


def test_explicit_start_does_not_move_with_the_log_start(
    three: Path, retention: Retention, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"startingOffsets": '{"t":{"0":0,"1":-2}}', "endingOffsets": '{"t":{"0":30,"1":-1}}'}
    scan = Load(three, failOnDataLoss=False, **options).scan()
    strict = Load(three, **options).scan()
    retention(0, 1)
    with pytest.raises(DataLoss, match=r"t-0.*\(offset 0\): records in \[0, 10\) are gone.*failOnDataLoss=false"):
        strict.read()
    assert values(scan.read()) == numbers(10, 30) + numbers(100, 110)
    assert len(caplog.messages) == 1


def test_records_deleted_after_the_first_rows_are_data_loss(three: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(three, "u", 0, numbers(0, 3000), batch=100)
    for start in (3000, 3010, 3020):
        append(three, "u", 0, numbers(start, start + 10), roll_first=True)
    strict = next(Load(three, subscribe="u").scan().tasks())
    forgiving = next(Load(three, subscribe="u", failOnDataLoss=False).scan().tasks())
    first = [next(strict), next(forgiving)]
    assert [batch.num_rows for batch in first] == [1024, 1024]
    delete_first_segment(three, "u", 0)
    delete_first_segment(three, "u", 0)
    with pytest.raises(DataLoss, match=r"u-0.*records in \[3000, 3010\) are gone.*failOnDataLoss=false"):
        list(strict)
    rest = pa.Table.from_batches([first[1], *forgiving])
    assert values(rest) == numbers(0, 3000) + numbers(3010, 3030)
    assert len(caplog.messages) == 1
