"""mode=DROPMALFORMED from planning on: damage is passed over wherever it is met, and told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual

from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Damage = Callable[[bytearray, int, int], None]


def flip_a_record(data: bytearray, at: int, size: int) -> None:
    data[at + size - 1] ^= 0xFF


def zero_the_length(data: bytearray, at: int, size: int) -> None:
    data[at + 8 : at + 12] = bytes(4)


def break_the_magic(data: bytearray, at: int, size: int) -> None:
    data[at + 16] = 9


@pytest.fixture(params=[flip_a_record, zero_the_length, break_the_magic], ids=lambda damage: damage.__name__)
def damaged(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """t-0: record n has the timestamp FIRST_TIMESTAMP + n; two segments of ten batches of ten; 20-29 and 150-159 are
    damaged, and no index helps."""
    for start in (0, 100):
        append(
            tmp_path,
            "t",
            0,
            [f"{n:03}" for n in range(start, start + 100)],
            timestamps=[FIRST_TIMESTAMP + n for n in range(start, start + 100)],
            roll_first=True,
            index_interval_bytes=1 << 30,
        )
    for base_offset, batch in ((0, 2), (100, 5)):
        log = tmp_path / "t-0" / f"{base_offset:020d}.log"
        data = bytearray(log.read_bytes())
        request.param(data, batch * len(data) // 10, len(data) // 10)
        log.write_bytes(data)
    for index in (tmp_path / "t-0").glob("*.timeindex"):
        index.unlink()
    return tmp_path


def offsets(start: int, end: int) -> list[int]:
    """Those of [start, end) that are not damaged."""
    return [n for n in range(start, end) if not 20 <= n < 30 and not 150 <= n < 160]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 200)),
        ({"startingTimestamp": FIRST_TIMESTAMP + 45}, (45, 200)),
        ({"startingTimestamp": FIRST_TIMESTAMP + 25}, (25, 200)),
        ({"startingTimestamp": FIRST_TIMESTAMP + 175}, (175, 200)),
        ({"endingTimestamp": FIRST_TIMESTAMP + 45}, (0, 45)),
        ({"startingTimestamp": FIRST_TIMESTAMP + 15, "endingTimestamp": FIRST_TIMESTAMP + 190}, (15, 190)),
        ({"isolationLevel": "read_committed"}, (0, 200)),
        ({"maxPartitionBytes": 1, "minPartitions": 7}, (0, 200)),
        ({"startingOffsets": '{"t":{"0":22}}', "endingOffsets": '{"t":{"0":155}}'}, (22, 155)),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_planning_and_reading_skip_damage(damaged: Path, options: dict[str, object], expected: tuple[int, int]) -> None:
    found = Load(damaged, mode="DROPMALFORMED", **options).scan().read()
    assert found["offset"].to_pylist() == offsets(*expected)
    assert found["value"].to_pylist() == [f"{n:03}".encode() for n in offsets(*expected)]


@pytest.mark.parametrize("start", [15, 25, 145, 155, 199])
def test_pushed_timestamp_filter_skips_damage(damaged: Path, start: int) -> None:
    wanted = GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP + start))
    found = Load(damaged, mode="DROPMALFORMED", pushdown=True).scan(wanted).read()
    assert found["offset"].to_pylist() == offsets(start, 200)
