from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.log.write.encoded_batch import split_batches
from kafkalog_spark.log.write.segment_roll import should_roll
from tests.golden_data import KAFKA_4_3, GoldenLog, golden_logs
from tests.log.helpers.log_writer import LogWriter

EMPTY: dict[str, Any] = {
    "size": 0, "base_offset": 100, "first_timestamp": None, "age_ms": 4000, "are_indexes_full": False,
    "segment_bytes": 1000, "segment_ms": 10_000,
}  # fmt: skip
BEGUN = EMPTY | {"size": 500, "first_timestamp": 5000}


@pytest.mark.parametrize(
    ("state", "batch", "expected"),
    [
        (EMPTY, {}, False),
        (BEGUN, {}, False),
        (BEGUN | {"size": 939}, {}, False),  # exactly full afterwards
        (BEGUN | {"size": 940}, {}, True),
        (BEGUN, {"max_timestamp": 15_000}, False),  # segment.ms is not exceeded yet
        (BEGUN, {"max_timestamp": 15_001}, True),
        (BEGUN | {"segment_ms": 9_999}, {"max_timestamp": 15_000}, True),
        (BEGUN | {"age_ms": 99_999_999}, {}, False),  # records tell the time, not the clock
        (BEGUN | {"first_timestamp": -1, "age_ms": 10_000}, {}, False),
        (BEGUN | {"first_timestamp": -1, "age_ms": 10_001}, {}, True),  # no timestamps: the clock since it was made
        (EMPTY | {"age_ms": 99_999_999}, {}, False),  # an empty segment does not age
        (BEGUN | {"are_indexes_full": True}, {}, True),
        (BEGUN, {"last_offset": 100 + 2**31 - 1}, False),
        (BEGUN, {"last_offset": 100 + 2**31}, True),
        (EMPTY, {"last_offset": 100 + 2**31}, True),
        (BEGUN, {"last_offset": 99}, True),
    ],
)
def test_segment_is_rolled_as_in_kafka(state: dict[str, Any], batch: dict[str, int], expected: bool) -> None:
    header = parse_header(bytes(8) + bytes([0, 0, 0, 49]) + bytes(4) + bytes([2]) + bytes(44), 0, 0)
    assert header.size == 61
    header = header._replace(**({"last_offset": 120, "max_timestamp": 5000} | batch))
    assert should_roll(header, **state) is expected


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, topic="segments", crashed=False), ids=str)
def test_replayed_golden_partition_equals_kafkas_directory(log: GoldenLog, tmp_path: Path) -> None:
    """Segments rolled at the same offsets, logs, both indexes, empty producer snapshots: every byte of every file."""
    with LogWriter(tmp_path / "p", segment_bytes=64 * 1024) as writer:
        for path in log.segments():
            for encoded in split_batches(path.read_bytes()):
                writer.append(encoded)
    ours, theirs = files(tmp_path / "p"), files(log.directory)
    # The broker was restarted after its crash, and led again in epoch 2, from the log end on. partition.metadata holds
    # the topic's id, which whoever makes the directory knows.
    assert ours.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert theirs.pop("leader-epoch-checkpoint") == b"0\n2\n0 0\n2 6000\n"
    del theirs["partition.metadata"]
    assert ours == theirs
