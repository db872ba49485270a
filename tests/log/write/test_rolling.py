from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.write.encoded_batch import batches_of
from kafkalog_spark.log.write.segment_recovery import should_roll
from tests.golden_data import KAFKA_4_3, GoldenLog, golden_logs
from tests.log.helpers.log_writer import LogWriter

EMPTY: dict[str, Any] = {
    "size": 0, "base_offset": 100, "first_timestamp": None, "created_ms": 1000, "indexes_full": False,
    "incoming_size": 60, "incoming_last_offset": 120, "incoming_max_timestamp": 5000, "now_ms": 5000,
    "segment_bytes": 1000, "segment_ms": 10_000,
}  # fmt: skip
BEGUN = EMPTY | {"size": 500, "first_timestamp": 5000}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EMPTY, False),
        (BEGUN, False),
        (BEGUN | {"size": 940}, False),  # exactly full afterwards
        (BEGUN | {"size": 941}, True),
        (BEGUN | {"incoming_max_timestamp": 15_000}, False),  # segment.ms is not exceeded yet
        (BEGUN | {"incoming_max_timestamp": 15_001}, True),
        (BEGUN | {"incoming_max_timestamp": 15_000, "jitter_ms": 1}, True),
        (BEGUN | {"now_ms": 99_999_999}, False),  # records tell the time, not the clock
        (BEGUN | {"first_timestamp": -1, "now_ms": 11_000}, False),
        (BEGUN | {"first_timestamp": -1, "now_ms": 11_001}, True),  # no timestamps: the clock since it was made
        (EMPTY | {"now_ms": 99_999_999}, False),  # an empty segment does not age
        (BEGUN | {"indexes_full": True}, True),
        (BEGUN | {"incoming_last_offset": 100 + 2**31 - 1}, False),
        (BEGUN | {"incoming_last_offset": 100 + 2**31}, True),
        (EMPTY | {"incoming_last_offset": 100 + 2**31}, True),
    ],
)
def test_a_segment_is_rolled_when_kafka_would_roll_it(state: dict[str, Any], expected: bool) -> None:
    assert should_roll(**state) is expected


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, topic="segments", crashed=False), ids=str)
def test_replaying_a_golden_partition_gives_kafkas_directory(log: GoldenLog, tmp_path: Path) -> None:
    """Segments rolled at the same offsets, logs, both indexes, empty producer snapshots: every byte of every file."""
    with LogWriter(tmp_path / "p", segment_bytes=64 * 1024) as writer:
        for path in log.segments():
            for encoded in batches_of(path.read_bytes()):
                writer.append(encoded)
    ours, theirs = files(tmp_path / "p"), files(log.directory)
    # The broker was restarted after its crash, and led again in epoch 2, from the log end on. partition.metadata holds
    # the topic's id, which whoever makes the directory knows.
    assert ours.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert theirs.pop("leader-epoch-checkpoint") == b"0\n2\n0 0\n2 6000\n"
    del theirs["partition.metadata"]
    assert ours == theirs
