"""replicas=merge with a primary copy that ends in damage, is empty, or has a segment that cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch, NotALogDirectory, OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.repair.merged_log import merged_location
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS
from tests.log.helpers.damaged_copies import broken, broker, data
from tests.log.helpers.damaged_log import NAME, TOPIC, log_path
from tests.log.repair.test_damage_at_log_end import BATCH, permissive
from tests.source.helpers.driver import read

pytestmark = pytest.mark.local_only("it writes to its source")


def merged(*roots: Path, **options: Any) -> list[int]:
    offsets = read(*roots, subscribe=TOPIC, columns="offset", replicas="merge", **options)["offset"]
    return list(offsets.to_pylist())


def test_end_damaged_in_one_copy_only_is_not_damage(tmp_path: Path) -> None:
    later = [(0, 0), (1, 10)]
    a = broker(tmp_path / "a", {0: data(0) + broken(data(5))}, later, recovery_point=10)
    b = broker(tmp_path / "b", {0: data(0) + data(5)})
    assert merged(a, b) == [*range(10)]
    assert permissive(a, b, replicas="merge") == ([*range(10)], [])
    report = repair_log_dirs([a, b], tmp_path / "new")
    assert (report.partitions[0].losses, report.partitions[0].log_end_offset) == ([], 10)
    again = broker(tmp_path / "again", {0: data(0) + broken(data(5)) + broken(data(10))}, later, recovery_point=15)
    with pytest.raises(CorruptBatch):
        merged(again, b)
    assert permissive(again, b, replicas="merge") == (
        [*range(10)], [(str(log_path(again / NAME)), BATCH, 2 * BATCH, 10, None)],
    )  # fmt: skip


def test_end_damaged_in_all_copies_has_a_damage_row(tmp_path: Path) -> None:
    roots = [broker(tmp_path / name, {0: data(0) + broken(data(5))}, recovery_point=10) for name in ("a", "b")]
    expected = [(str(log_path(roots[0] / NAME)), BATCH, BATCH, 5, None)]
    assert permissive(*roots, replicas="merge") == ([*range(5)], expected)
    assert merged(*roots, mode="DROPMALFORMED") == [*range(5)]
    with pytest.raises(CorruptBatch):
        merged(*roots)


def test_empty_last_segment_gives_the_next_offset(tmp_path: Path) -> None:
    roots = [broker(tmp_path / name, {0: data(0), 50: b""}, recovery_point=50) for name in ("a", "b")]
    assert merged(*roots) == [*range(5)]
    assert merged(*roots, startingOffsets=f'{{"{TOPIC}":{{"0":50}}}}') == []
    (partition,) = repair_log_dirs(roots, tmp_path / "new").partitions
    assert (partition.log_end_offset, partition.losses) == (50, [])
    assert log_path(tmp_path / "new" / NAME, 50).read_bytes() == b""
    assert LogDirs.open(tmp_path / "new").partition(TOPIC, 0).log_end_offset == 50


def test_unreadable_segment_is_taken_from_another_copy(tmp_path: Path) -> None:
    a = broker(tmp_path / "a", {0: data(0), 10: data(10)}, [(0, 0), (1, 10)])
    log_path(a / NAME, 5).mkdir()
    b = broker(tmp_path / "b", {0: data(0), 5: data(5), 10: data(10)})
    assert merged(a, b) == [*range(10), *range(10, 15)]
    report = repair_log_dirs([a, b], tmp_path / "new")
    assert [one.first_offset for one in report.partitions[0].taken] == [5]
    without = broker(tmp_path / "without", {0: data(0)})
    with pytest.raises(NotALogDirectory, match="the segment cannot be opened"):
        merged(a, without)


def test_partition_that_cannot_be_merged_does_not_affect_others(tmp_path: Path) -> None:
    roots = [broker(tmp_path / name, {0: data(0)}) for name in ("a", "b")]
    for root in roots:
        shutil.copytree(root / NAME, root / f"{TOPIC}-1")
    log_path(roots[0] / NAME, 5).mkdir()  # its log end decides between the copies
    first, second = repair_log_dirs(roots, tmp_path / "new").partitions
    assert first.error is not None
    assert "the segment cannot be opened" in first.error
    assert (second.error, second.log_end_offset) == (None, 5)


def test_tiered_storage_is_refused(tmp_path: Path) -> None:
    roots = [broker(tmp_path / name, {0: data(0)}) for name in ("a", "b")]
    places = LogDirs.open(roots).copies[TOPIC, 0]
    remote = RemoteDir.__new__(RemoteDir)
    tiered = [
        TieredLocation(TOPIC, 0, place.directory, place.store, True, (remote,), DEFAULT_TIER_OPTIONS)
        for place in places
    ]
    with pytest.raises(OptionError, match="orders-0 has segments in tiered storage"):
        merged_location(tiered)
