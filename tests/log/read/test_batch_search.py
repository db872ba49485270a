"""Looking for the next good batch behind damage: found wherever it is, in time that grows with the file only."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.format import batch_header
from kafkalog_spark.format.batch_header import BatchHeader, crc_in_pieces
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read import batch_search
from kafkalog_spark.log.read.batch_search import find_batch
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.store.local_store import LOCAL
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import AFTER, BEFORE, HONEST, TIME, log_path, write_segments

PAGE = bytes(4096)


def opened(root: Path, data: bytes) -> SegmentFile:
    path = log_path(write_segments(root, {0: data}))
    return SegmentFile.open(LOCAL, str(path.parent), SegmentFiles(0, path.name))


@pytest.mark.parametrize("behind", [b"", b"\x00", PAGE, b"\xff" * 100, AFTER, AFTER[:40], HONEST[:-1] + b"!"])
@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 77, PAGE, bytes((1 << 20) - 30), bytes(1 << 20)])
def test_good_batch_is_found_between_any_bytes(garbage: bytes, behind: bytes, tmp_path: Path) -> None:
    with opened(tmp_path, BEFORE + garbage + HONEST + behind) as file:
        found = find_batch(file, len(BEFORE), 5)
    assert found is not None
    assert (found.position, found.base_offset) == (len(BEFORE) + len(garbage), 5)


def test_batch_with_lower_offsets_is_not_found(tmp_path: Path) -> None:
    with opened(tmp_path, BEFORE + b"\xff" + BEFORE + AFTER) as file:
        found = find_batch(file, len(BEFORE), 5)
    assert found is not None
    assert found.base_offset == 10


@pytest.mark.parametrize("step", [24, 29])
def test_false_headers_are_bounded_by_the_crc_allowance(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty thousand of them in 512 KB, each for a batch of 256 KB: 5 GB of CRC, if all were asked for."""
    size = 512 << 10
    fake = struct.pack(">qi", 0, size // 2) + bytes(step - 12)
    tail = fake * (size // step)
    read = 0
    real = crc_in_pieces

    def counted(read_range: Callable[[int, int], bytes], header: BatchHeader) -> int:
        nonlocal read
        read += header.size
        return real(read_range, header)

    monkeypatch.setattr(batch_search, "_CRC_BYTES", 1 << 20)
    monkeypatch.setattr(batch_header, "crc_in_pieces", counted)
    first = batch(0, [V2Record(0, TIME)])
    with opened(tmp_path, first + b"\x00" * 3 + tail + HONEST) as file:
        found = find_batch(file, len(first) + 1, 0)
        assert 0 < read <= 2 * ((1 << 20) + 4 * file.size)
    assert found is not None
    assert found.base_offset == 5, "a batch that fits into what is left is found behind them"
