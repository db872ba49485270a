"""The examples that write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import golden_data
from tests.examples.test_examples import run
from tests.sink.helpers.written_logs import read, values, write

pytestmark = [pytest.mark.spark, pytest.mark.end_to_end]


@pytest.mark.slow
def test_small_segments_become_big_ones(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / "small", values(*range(number * 10, number * 10 + 10)), topic="t", numPartitions=2)
    told = run("compact_small_segments.py", tmp_path / "small", tmp_path / "big", "t")
    assert "before: 12 segments" in told
    assert "after: 2 segments" in told
    assert read(tmp_path / "big") == read(tmp_path / "small")


@pytest.mark.slow
def test_a_topic_is_copied_from_kafkas_files(golden_copy: Callable[..., Path], tmp_path: Path) -> None:
    source = golden_copy(golden_data.KAFKA_4_3, "segments-0", "segments-1", "segments-2")
    told = run("copy_topic.py", source, tmp_path / "target", "segments", "copied")
    expected = [row | {"topic": "copied"} for row in read(source, "segments")]
    assert f"{len(expected)} records of segments copied to copied" in told
    assert read(tmp_path / "target", "copied") == expected
