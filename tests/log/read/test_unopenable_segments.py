"""Names of segments that lead to no file, or to something that is none: an error with the path, never a wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import DataLoss, NotALogDirectory
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.log.helpers.damaged_log import AFTER, BEFORE, HONEST, TIME, log_path, open_log, write_segments
from tests.log.helpers.rows import plain_rows

READS: dict[str, Callable[[PartitionLog], Any]] = {
    "scan": lambda log: list(scan_partition(log, 0, 15)),
    "read_committed": lambda log: list(scan_partition(log, 0, 15, ScanRequest(read_committed=True))),
    "LSO": last_stable_offset,
    "aborted transactions": lambda log: aborted_transactions(log, 0, 15),
    "offset for timestamp": lambda log: offset_for_timestamp(log, TIME + 12),
}


def three_segments(tmp_path: Path) -> Path:
    return write_segments(tmp_path, {0: BEFORE, 5: HONEST, 10: AFTER})


@pytest.mark.parametrize("base", [0, 5])
@pytest.mark.parametrize("read", READS)
def test_broken_link_is_named(read: str, base: int, tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    path = log_path(directory, base)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotALogDirectory, match="does not exist") as raised:
        READS[read](open_log(directory))
    assert (raised.value.topic_partition, raised.value.path) == ("orders-0", str(path))


def test_broken_link_as_the_last_segment_is_named(tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    path = log_path(directory, 10)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotALogDirectory, match="does not exist") as raised:
        _ = open_log(directory).log_end_offset
    assert (raised.value.topic_partition, raised.value.path) == ("orders-0", str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("read", READS)
def test_pipe_or_directory_named_like_a_segment_is_named(
    read: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = three_segments(tmp_path)
    path = log_path(directory, 0)
    path.unlink()
    make(path)
    with pytest.raises(NotALogDirectory, match="is not a regular file") as raised:
        READS[read](open_log(directory))
    assert (raised.value.topic_partition, raised.value.path) == ("orders-0", str(path))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_pipe_named_like_an_index_is_ignored(suffix: str, tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    os.mkfifo(directory / f"{segment_name(5)}{suffix}")
    os.mkfifo(directory / f"{segment_name(10)}{suffix}")
    log = open_log(directory)
    assert log.log_end_offset == 15
    request = ScanRequest(timestamp_from_ms=TIME + 7)
    assert [row["offset"] for row in plain_rows(scan_partition(log, 7, 15, request))] == list(range(7, 15))


@pytest.mark.parametrize("read", READS)
def test_partition_whose_files_were_deleted_is_data_loss_or_an_empty_log(read: str, tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    log = open_log(directory)
    assert log.log_end_offset == 15
    for path in directory.iterdir():
        path.unlink()
    if read in ("scan", "read_committed"):
        with pytest.raises(DataLoss):
            READS[read](log)
    else:
        READS[read](log)
