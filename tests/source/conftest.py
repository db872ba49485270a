"""Logs that several tests of the source read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.made_logs import append, numbers, segment_offsets


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Topic t: "0" to "29" on partition 0 (three segments of ten), "100" to "109" on 1."""
    for at_ in (0, 10, 20):
        append(tmp_path, "t", 0, numbers(at_, at_ + 10), roll_first=True)
    append(tmp_path, "t", 1, numbers(100, 110))
    assert segment_offsets(tmp_path, "t", 0) == [0, 10, 20]
    return tmp_path
