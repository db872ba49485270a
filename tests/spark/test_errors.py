"""What goes wrong below Spark is said in the first line of Spark's exception: where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import fails, load, values


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    for start in (0, 10, 20):
        append(tmp_path, "t", 0, numbers(start, start + 10), roll_first=True)
    return tmp_path


def segment(path: Path, base_offset: int) -> Path:
    return path / "t-0" / f"{base_offset:020d}.log"


def test_invalid_path_or_missing_subscription_fails_at_load(spark: Any, tmp_path: Path) -> None:
    with fails() as failure:
        load(spark, tmp_path / "missing")
    assert failure.line.startswith(f"{tmp_path / 'missing'}: does not exist")
    with fails() as failure:
        load(spark, tmp_path)
    assert failure.line.startswith(f"{tmp_path}: is not a Kafka log directory")
    append(tmp_path, "t", 0, numbers(0, 1))
    with fails() as failure:
        spark.read.format("kafkalog").load(str(tmp_path))
    assert failure.line.startswith("One of the following options must be specified for Kafka source: subscribe, ")


def test_damaged_batch_is_named_by_the_task(spark: Any, segments: Path) -> None:
    log = segment(segments, 10)
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    with fails() as failure:
        load(spark, segments).count()
    assert failure.line.startswith(f"t-0 {log} at byte 0 (offset 10): CRC-32C does not match: the header says 0x")
    # the worker that failed is replaced, and what is whole is read
    assert values(load(spark, segments, startingOffsets='{"t":{"0":20}}')) == numbers(20, 30)
    assert values(load(spark, segments, mode="DROPMALFORMED")) == [*numbers(0, 10), *numbers(20, 30)]


def test_truncated_segment_in_the_middle_of_the_log_is_named(spark: Any, segments: Path) -> None:
    log = segment(segments, 10)
    log.write_bytes(log.read_bytes()[:-5])
    with fails() as failure:
        load(spark, segments).count()
    assert failure.line.startswith(f"t-0 {log} at byte 0 (offset 10): a batch of ")


def test_damaged_end_of_the_log_is_named_while_planning(spark: Any, segments: Path) -> None:
    append(segments, "t", 0, numbers(30, 40))
    log = segment(segments, 20)
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    segment(segments, 20).with_suffix(".index").unlink()
    with fails() as failure:
        load(spark, segments).count()
    assert failure.line.startswith(f"t-0 {log} at byte 0 (offset 20): CRC-32C does not match")
    assert "so this is damage" in failure.line


def test_torn_tail_is_no_error(spark: Any, segments: Path) -> None:
    log = segment(segments, 20)
    log.write_bytes(log.read_bytes() + segment(segments, 10).read_bytes()[:50])
    assert values(load(spark, segments)) == numbers(0, 30)


def test_unreadable_segment_is_named(spark: Any, segments: Path) -> None:
    log = segment(segments, 10)
    log.unlink()
    log.symlink_to(log.name)  # a loop: cannot be opened by root either
    with fails() as failure:
        load(spark, segments).count()
    assert failure.line.startswith(f"t-0 {log}: the segment cannot be opened: Too many levels of symbolic links")
