"""Damage at the end of a log, where no good batch follows: it has its row, however the read is bounded and cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.log_dir import LogDirs
from tests.log.helpers.batch_builder import batch
from tests.log.helpers.damaged_copies import broken, broker, data
from tests.log.helpers.damaged_log import NAME, TOPIC, log_path, records
from tests.source.helpers.driver import Load, read

pytestmark = pytest.mark.local_only("it writes to its source")

Lost = tuple[str, int, int, int, int | None]


def permissive(*roots: Path, **options: Any) -> tuple[list[int], list[Lost]]:
    """Offsets of good records, and of each damaged stretch file, position, length, first and next offset."""
    rows = Load(*roots, subscribe=TOPIC, columns="offset", mode="PERMISSIVE", **options).scan().read().to_pylist()
    return [row["offset"] for row in rows if row["_error"] is None], [
        (row["_file"], row["_position"], row["_length"], row["_first_offset"], row["_next_offset"])
        for row in rows
        if row["_error"] is not None
    ]


BATCH = len(data(0))
VARIANTS: list[dict[str, Any]] = [
    {},
    {"tail": 100},
    {"minPartitions": 4},
    {"maxPartitionBytes": 1},
    {"maxRecordsPerPartition": 2},
    {"isolationLevel": "read_committed"},
    {"endingTimestamp": 1_900_000_000_000},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_damage_at_the_end_of_the_last_segment_or_of_the_partition_has_a_row(
    options: dict[str, Any], tmp_path: Path
) -> None:
    last = broker(tmp_path / "last", {0: data(0), 5: broken(data(5))}, recovery_point=10)
    with pytest.raises(CorruptBatch):
        read(last, subscribe=TOPIC)
    assert permissive(last, **options) == ([*range(5)], [(str(log_path(last / NAME, 5)), 0, BATCH, 5, None)])
    one = broker(tmp_path / "one", {0: broken(data(0)) + broken(data(5))}, recovery_point=10)
    assert permissive(one, **options) == ([], [(str(log_path(one / NAME)), 0, 2 * BATCH, 0, None)])
    two = broker(tmp_path / "two", {0: broken(data(0)), 5: broken(data(5))}, recovery_point=10)
    assert permissive(two, **options) == (
        [],
        [(str(log_path(two / NAME)), 0, BATCH, 0, 5), (str(log_path(two / NAME, 5)), 0, BATCH, 5, None)],
    )


def test_damage_at_the_log_end_is_only_in_ranges_that_reach_it(tmp_path: Path) -> None:
    last = broker(tmp_path / "last", {0: data(0), 5: broken(data(5))}, recovery_point=10)

    def bounds(start: int, end: int) -> dict[str, str]:
        return {
            name: f'{{"{TOPIC}":{{"0":{at}}}}}' for name, at in (("startingOffsets", start), ("endingOffsets", end))
        }

    assert permissive(last, **bounds(0, 4)) == ([*range(4)], [])
    for start in (3, 5):
        good, lost = permissive(last, **bounds(start, 5))
        assert (good, [at for _, _, _, at, _ in lost]) == ([*range(start, 5)], [5])
    rows = [row for part in LogDirs.open(last).scan(TOPIC, damage_rows=True) for row in part.to_pylist()]
    assert [row["_first_offset"] for row in rows if row["_error"]] == [5]


def test_torn_tail_is_not_damage(tmp_path: Path) -> None:
    torn = broker(tmp_path, {0: data(0), 5: broken(data(5))}, recovery_point=5)
    assert permissive(torn) == ([*range(5)], [])


def test_damage_after_an_open_transaction_has_a_row_with_read_committed(tmp_path: Path) -> None:
    first = batch(0, records(0), producer_id=7, producer_epoch=0, base_sequence=0, attributes=16)
    root = broker(tmp_path, {0: first, 5: broken(data(5))}, recovery_point=10)
    path = str(log_path(root / NAME, 5))
    assert permissive(root, isolationLevel="read_committed") == ([], [(path, 0, BATCH, 5, None)])
