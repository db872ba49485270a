"""Logs that several tests of the source read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.log.read.partition_log import PartitionLog
from tests.source.helpers.made_logs import append, numbers, segment_offsets
from tests.source.helpers.planned import RECORDS, SEGMENT_BYTES


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Topic t: "0" to "29" on partition 0 (three segments of ten), "100" to "109" on 1."""
    for at_ in (0, 10, 20):
        append(tmp_path, "t", 0, numbers(at_, at_ + 10), roll_first=True)
    append(tmp_path, "t", 1, numbers(100, 110))
    assert segment_offsets(tmp_path, "t", 0) == [0, 10, 20]
    return tmp_path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Topic t, one partition: 100 records in 10 batches in 5 segments of two batches; every batch after the first of a
    segment has an index entry."""
    append(tmp_path, "t", 0, numbers(0, RECORDS), segment_bytes=SEGMENT_BYTES)
    assert segment_offsets(tmp_path, "t", 0) == [0, 20, 40, 60, 80]
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Base offsets of the segments that are opened, in order."""
    seen: list[int] = []
    original = PartitionLog.open_segment

    def spy(self: PartitionLog, index: int):
        seen.append(self.segments[index].base_offset)
        return original(self, index)

    monkeypatch.setattr(PartitionLog, "open_segment", spy)
    return seen
