"""Files and directories that are missing, unreadable or wrong, and logs that change while they are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch, DataLoss, KafkalogError, NotALogDirectory
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests.log.helpers.batch_builder import (
    batch,
)
from tests.log.helpers.damaged_log import (
    AFTER,
    BEFORE,
    HONEST,
    TIME,
    log_path,
    open_log,
    read_all,
    records,
    write_segments,
)
from tests.log.helpers.rows import plain_rows


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotALogDirectory, match=r"orders-0.*No such file"):
        open_log(tmp_path / "orders-0")


def deny(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """What chmod 000 does; the super-user, who may run these tests, would read on."""
    real = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(suffix):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)


def test_segment_without_read_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_segments(tmp_path, {0: BEFORE, 5: HONEST})
    deny(monkeypatch, ".log")
    with pytest.raises(NotALogDirectory, match="Permission denied") as raised:
        read_all(directory)
    assert raised.value.topic_partition == "orders-0"
    assert raised.value.path == str(log_path(directory, 5))


def test_read_error_is_not_taken_for_log_end_or_wrong_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + HONEST + AFTER})
    log = open_log(directory)
    assert log.log_end_offset == 15

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("pread", "preadv"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(NotALogDirectory, match="cannot be read: Input/output error") as raised:
                read_all(directory)
            assert (raised.value.topic_partition, raised.value.path) == ("orders-0", str(log_path(directory)))
            assert raised.value.position is not None


@pytest.mark.parametrize(
    "content", [b"\x00\x00\x00\x04\x00\x00\xff\xff", b"\x7f" * 800, b"\xff" * 800, bytes(800), b"\x01"]
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_index_pointing_past_the_end_loses_no_row(suffix: str, content: bytes, tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + HONEST, 10: AFTER})
    for base in (0, 10):
        (directory / f"{segment_name(base)}{suffix}").write_bytes(content)
    log = open_log(directory)
    assert log.log_end_offset == 15
    for start in (0, 7, 12):
        for request in (ScanRequest(), ScanRequest(timestamp_from_ms=TIME + 6), ScanRequest(read_committed=True)):
            low = max(start, 6 if request.timestamp_from_ms > 0 else 0)
            rows = plain_rows(scan_partition(log, start, 15, request))
            assert [row["offset"] for row in rows] == list(range(low, 15))


def offsets(batches: Any) -> list[int]:
    return [row["offset"] for row in plain_rows(batches)]


def three_segments(tmp_path: Path) -> Path:
    return write_segments(tmp_path, {0: BEFORE, 5: HONEST, 10: AFTER})


def test_segments_deleted_between_planning_and_reading_are_data_loss(tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    log = open_log(directory)
    assert log.log_end_offset == 15
    log_path(directory).rename(directory / f"{segment_name(0)}.log.deleted")
    with pytest.raises(DataLoss, match=r"records in \[0, 5\) are gone") as raised:
        list(scan_partition(log, 0, 15))
    assert (raised.value.topic_partition, raised.value.offset) == ("orders-0", 0)
    lost: list[KafkalogError] = []
    assert offsets(scan_partition(open_log(directory), 0, 15, on_loss=lost.append)) == list(range(5, 15))
    assert len(lost) == 1


def test_log_whose_segments_were_all_deleted_is_data_loss(tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    log = open_log(directory)
    assert log.log_end_offset == 15
    for base in (0, 5, 10):
        log_path(directory, base).unlink()
    with pytest.raises(DataLoss, match=r"records in \[2, 15\) are gone"):
        list(scan_partition(log, 2, 15))
    lost: list[KafkalogError] = []
    assert offsets(scan_partition(log, 2, 15, on_loss=lost.append)) == []
    assert len(lost) == 1


def test_deleted_directory_is_data_loss_and_named(tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    log = open_log(directory)
    directory.rename(tmp_path / "elsewhere")
    with pytest.raises(DataLoss, match=r"records in \[0, 15\) are gone") as raised:
        list(scan_partition(log, 0, 15))
    assert (raised.value.topic_partition, raised.value.path) == ("orders-0", str(directory))


@pytest.mark.parametrize("size", [0, len(AFTER) - 1, 30])
def test_log_truncated_between_planning_and_reading_is_data_loss_or_damage(size: int, tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    log = open_log(directory)
    assert log.log_end_offset == 15
    os.truncate(log_path(directory, 10), size)
    with pytest.raises(DataLoss if size == 0 else CorruptBatch) as raised:
        list(scan_partition(log, 0, 15))
    assert raised.value.topic_partition == "orders-0"
    assert raised.value.offset == 10


def test_segment_renamed_during_a_read_is_found_under_its_new_name(tmp_path: Path) -> None:
    """The cleaner's last step: .swap files lose their suffix, the old ones become .deleted."""
    directory = write_segments(tmp_path, {0: BEFORE + HONEST, 10: AFTER})
    cleaned = batch(0, records(1, 2), last_offset=4)
    log = open_log(directory)
    found = scan_partition(log, 0, 15, ScanRequest(first_batch_rows=1))
    first = next(found)
    (directory / f"{segment_name(0)}.log.swap").write_bytes(cleaned + HONEST)
    log_path(directory).rename(directory / f"{segment_name(0)}.log.deleted")
    (directory / f"{segment_name(0)}.log.swap").rename(log_path(directory))
    assert offsets([first, *found]) == list(range(15)), "the open file goes on, whatever its name"
    assert offsets(scan_partition(open_log(directory), 0, 15)) == [1, 2, *range(5, 15)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (".log.deleted", list(range(15))),
        (".log.cleaned", list(range(15))),
        (".log.swap", [1, 2, *range(10, 15)]),
    ],
)
def test_files_of_the_cleaner_are_used_as_by_kafka(state: str, expected: list[int], tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    cleaned = batch(0, records(1, 2), last_offset=9)
    (directory / f"{segment_name(0)}{state}").write_bytes(cleaned)
    log = open_log(directory)
    assert offsets(scan_partition(log, 0, 15)) == expected


def test_damaged_swap_file_is_named(tmp_path: Path) -> None:
    directory = three_segments(tmp_path)
    swap = directory / f"{segment_name(0)}.log.swap"
    swap.write_bytes(BEFORE[:-1] + b"!" + HONEST)
    with pytest.raises(CorruptBatch, match="CRC-32C") as raised:
        open_log(directory)
    assert (raised.value.topic_partition, raised.value.path, raised.value.position) == ("orders-0", str(swap), 0)
