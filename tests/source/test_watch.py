"""Change detection of paths: unchanged only if the modification time rules out a hidden change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog_spark.source.watch import COARSE_NS, FINE_NS, Watch

FINE, COARSE = 1_700_000_000_123_456_789, 1_700_000_000_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    return path


@pytest.mark.parametrize(("mtime", "granularity"), [(FINE, FINE_NS), (COARSE, COARSE_NS)])
def test_unchanged_state_is_trusted_only_after_the_timestamp_resolution(
    path: Path, mtime: int, granularity: int
) -> None:
    os.utime(path, ns=(mtime, mtime))
    watch = Watch(str(path))
    assert watch.changed(0)
    assert watch.changed(granularity - 1), "another change may have left the same time"
    assert watch.changed(granularity), "that was the look that counts"
    assert not watch.changed(granularity + 1)
    assert not watch.changed(granularity * 10)


def test_every_kind_of_change_is_detected(path: Path) -> None:
    watch = Watch(str(path))
    now = 0

    def quiet() -> None:
        nonlocal now
        while watch.changed(now):
            now += COARSE_NS

    quiet()
    with path.open("ab") as file:
        file.write(b"d")
    os.utime(path, ns=(FINE, FINE))
    assert watch.changed(now)
    quiet()
    os.utime(path, ns=(FINE + 1, FINE + 1))
    assert watch.changed(now)
    quiet()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(FINE + 1, FINE + 1))
    other.replace(path)
    assert watch.changed(now)
    quiet()
    watch.forget()
    assert watch.changed(now)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        watch.changed(now)
