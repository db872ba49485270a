"""Where a read begins and ends when timestamps say so: Spark's KafkaRelationSuite in spirit, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.source.helpers.driver import read
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, append, numbers


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t-0, t-1, t-2: "0".."9", "10".."19", "20".."29"; the records of a partition have FIRST_TIMESTAMP, + 1, ... ms."""
    path = tmp_path_factory.mktemp("timed")
    for partition in range(3):
        append(path, "t", partition, numbers(partition * 10, partition * 10 + 10))
    return path


def offsets(*numbers_: int) -> str:
    return json.dumps({"t": {str(partition): number for partition, number in enumerate(numbers_)}})


def at(*later: int) -> str:
    return offsets(*(FIRST_TIMESTAMP + ms for ms in later))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsetsByTimestamp": at(3, 0, 9), "endingOffsetsByTimestamp": at(5, 2, 10**6)},
            [*numbers(3, 5), *numbers(10, 12), "29"],
        ),
        ({"startingOffsetsByTimestamp": at(9, 8, 7)}, ["9", "18", "19", "27", "28", "29"]),
        ({"endingOffsetsByTimestamp": at(1, 0, 2)}, ["0", "20", "21"]),
        ({"startingOffsetsByTimestamp": at(8, 9, 9), "endingOffsets": offsets(9, 10, -1)}, ["8", "19", "29"]),
        ({"startingOffsets": offsets(-2, 1, 2), "endingOffsetsByTimestamp": at(1, 2, 3)}, ["0", "11", "22"]),
        ({"startingTimestamp": FIRST_TIMESTAMP + 8}, ["8", "9", "18", "19", "28", "29"]),
        ({"startingTimestamp": FIRST_TIMESTAMP + 1, "endingTimestamp": FIRST_TIMESTAMP + 2}, ["1", "11", "21"]),
        # no match: the end of the log, for an end always and for a start when asked for
        ({"startingTimestamp": FIRST_TIMESTAMP + 9, "endingTimestamp": FIRST_TIMESTAMP + 10**6}, ["9", "19", "29"]),
        (
            {"startingOffsetsByTimestamp": at(9, 10, 10), "startingOffsetsByTimestampStrategy": "latest"},
            ["9"],
        ),
        # what goes before what
        (
            {
                "startingTimestamp": FIRST_TIMESTAMP + 9,
                "startingOffsetsByTimestamp": at(5, 5, 5),
                "startingOffsets": "earliest",
                "endingTimestamp": FIRST_TIMESTAMP + 10,
                "endingOffsetsByTimestamp": at(1, 1, 1),
                "endingOffsets": offsets(2, 2, 2),
            },
            ["9", "19", "29"],
        ),
        (
            {"startingOffsetsByTimestamp": at(9, 9, 9), "startingOffsets": offsets(1, 1, 1)},
            ["9", "19", "29"],
        ),
    ],
    ids=[
        "both by timestamp",
        "start only",
        "end only",
        "start by timestamp, end by offset",
        "start by offset, end by timestamp",
        "global start",
        "global both",
        "no match at the end",
        "no match at the start, latest",
        "global timestamp goes first",
        "timestamps go before offsets",
    ],
)
def test_batch_bounded_by_timestamps_reads_the_expected_records(
    timed: Path, options: dict[str, Any], expected: list[str]
) -> None:
    found = read(timed, subscribe="t", **options).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert [value.decode() for value in found["value"].to_pylist()] == expected
