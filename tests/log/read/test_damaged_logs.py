"""Damage to whole logs: torn tails and what only looks like one, transaction markers, golden logs."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests import golden_data
from tests.golden_data import golden_logs
from tests.log.helpers.batch_builder import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    V2Record,
    batch,
    control,
)
from tests.log.helpers.damaged_log import (
    AFTER,
    BEFORE,
    HONEST,
    TIME,
    check_place,
    log_path,
    open_log,
    patched,
    read_all,
    records,
    write_segments,
)
from tests.log.helpers.rows import plain_rows


def test_bad_last_batch_without_a_recovery_point_is_a_torn_tail(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + HONEST[:-1] + b"!"})
    for recovery_point in (None, 0, 3, 5):
        assert open_log(directory, recovery_point).log_end_offset == 5
        assert [row["offset"] for row in read_all(directory, recovery_point)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("tail", [HONEST[:-1] + b"!", HONEST[:-1], HONEST[:17], HONEST[:16], HONEST[:1], bytes(300)])
def test_bad_last_batch_below_the_recovery_point_is_damage(tail: bytes, tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + tail})
    with pytest.raises(CorruptBatch, match="recovery-point-offset-checkpoint") as raised:
        read_all(directory, recovery_point=10)
    check_place(raised.value, directory, len(BEFORE), 5)


def test_missing_last_batch_below_the_recovery_point_is_damage(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE})
    log = open_log(directory, recovery_point=10)
    # The file ends with a whole batch: what retention and truncation leave too. The end is where it is.
    assert log.log_end_offset == 5


@pytest.mark.parametrize("bad", [HONEST[:-1] + b"!", patched(HONEST, 8, b"\x7f\xff\xff\xff"), bytes(100)])
def test_bad_batch_before_a_good_one_is_damage_without_a_recovery_point(bad: bytes, tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    with pytest.raises(CorruptBatch, match="a good batch with offset 10 follows at byte") as raised:
        read_all(directory)
    check_place(raised.value, directory, len(BEFORE), None)


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, len(HONEST) - 1])
def test_cut_batch_in_a_closed_segment_is_damage(size: int, tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + HONEST[:size], 10: AFTER})
    with pytest.raises(CorruptBatch, match="the file ends") as raised:
        read_all(directory)
    check_place(raised.value, directory, len(BEFORE), 5)


def test_zeros_in_a_closed_segment_are_damage(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + bytes(100), 10: AFTER})
    with pytest.raises(CorruptBatch, match="zeros where a batch should begin") as raised:
        read_all(directory)
    check_place(raised.value, directory, len(BEFORE), 5)


def test_offsets_overlapping_the_next_segment_are_damage(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + patched(HONEST, 0, struct.pack(">q", 6)), 10: AFTER})
    with pytest.raises(
        CorruptBatch, match="offsets 6 to 10 do not follow 4, or reach into the next segment at 10"
    ) as raised:
        read_all(directory)
    check_place(raised.value, directory, len(BEFORE), 6)


def test_offsets_below_the_base_offset_of_the_segment_are_damage(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE, 5: patched(HONEST, 0, struct.pack(">q", 4)), 10: AFTER})
    with pytest.raises(CorruptBatch, match="offsets 4 to 8 do not follow 4") as raised:
        read_all(directory)
    check_place(raised.value, directory, 0, 4, base=5)


def test_last_batch_with_offsets_out_of_order_is_not_a_torn_tail(tmp_path: Path) -> None:
    """Its CRC is right, so it was written whole: cutting it off would lose its records in silence."""
    directory = write_segments(tmp_path, {0: BEFORE + patched(HONEST, 0, struct.pack(">q", 1))})
    with pytest.raises(CorruptBatch, match="offsets 1 to 5 do not follow 4") as raised:
        read_all(directory)
    check_place(raised.value, directory, len(BEFORE), 1)


def test_batch_with_a_far_too_high_offset_before_the_last_is_damage(tmp_path: Path) -> None:
    """The scan would end with it, and the batches behind it would be lost."""
    directory = write_segments(tmp_path, {0: BEFORE + patched(HONEST, 0, struct.pack(">q", 2**50)) + AFTER})
    log = open_log(directory)
    log.__dict__["log_end"] = LogEnd(15, 0)  # as found through an index entry behind the damage
    with pytest.raises(CorruptBatch, match="do not fit between 4 and the next batch"):
        list(scan_partition(log, 0, 15))


def test_damaged_length_of_the_only_large_batch_allocates_no_memory(tmp_path: Path) -> None:
    """A hole of 1 GB behind a header that claims all of it: checked piece by piece, read into memory never."""
    directory = write_segments(tmp_path, {0: BEFORE + patched(HONEST, 8, struct.pack(">i", 200 << 20)), 10: AFTER})
    os.truncate(log_path(directory), 210 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="CRC-32C does not match") as raised:
            read_all(directory)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    check_place(raised.value, directory, len(BEFORE), 5)


def transactional(first: int, producer: int = 7) -> bytes:
    return batch(
        first, records(first), attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0
    )


@pytest.mark.parametrize("marker", [ABORT, COMMIT])
def test_flipped_bits_in_transaction_markers_change_no_read_committed_row(marker: int, tmp_path: Path) -> None:
    """Whatever happens to the marker is an error, or changes nothing."""
    parts = [transactional(0), control(5, marker, TIME, 7), batch(6, records(6, 2))]
    data, at = b"".join(parts), len(parts[0])
    directory = write_segments(tmp_path, {0: data})
    expected = read_committed(directory)
    assert [row["offset"] for row in expected] == ([6, 7] if marker == ABORT else [0, 1, 2, 3, 4, 6, 7])
    outcomes = set()
    for byte in range(at, at + len(parts[1])):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            log_path(directory).write_bytes(patched(data, byte, bytes([data[byte] ^ mask])))
            try:
                assert read_committed(directory) == expected
                outcomes.add(byte - at)
            except KafkalogError as error:
                if None in (error.topic_partition, error.path, error.position, error.offset):
                    raise  # an error without its place
    assert outcomes == {12, 13, 14, 15}, "only the leader epoch lies outside the CRC and says nothing"


def read_committed(directory: Path) -> list[dict[str, Any]]:
    log = open_log(directory)
    return plain_rows(scan_partition(log, 0, last_stable_offset(log), ScanRequest(read_committed=True)))


def test_last_stable_offset_is_found_despite_a_torn_tail(tmp_path: Path) -> None:
    for tail in (b"", bytes(200), HONEST[:40], HONEST[:5], b"\xff" * 90):
        directory = write_segments(tmp_path, {0: transactional(0) + tail})
        log = open_log(directory)
        assert (last_stable_offset(log), log.log_end_offset) == (0, 5)
        assert aborted_transactions(log, 0, 5).open == {7: 0}


@pytest.mark.local_only("messages name local paths")
@pytest.mark.parametrize("where", ["middle", "last"])
@pytest.mark.parametrize("topic", ["codec-none", "codec-lz4", "transactions", "java-zstd", "compacted"])
def test_wrong_crc_in_a_golden_log_is_an_error(
    topic: str, where: str, golden_copy: Callable[..., Path], tmp_path: Path
) -> None:
    """The recovery-point checkpoint beside these logs says that all of them was flushed."""
    golden_log = golden_logs(topic=topic, crashed=False)[0]
    copy = golden_copy(golden_data.KAFKA_4_3, golden_log.name)
    path = sorted((copy / golden_log.name).glob("*.log"))[-1]
    batches = golden_log.batches(golden_log.segments()[-1])
    hurt = batches[len(batches) // 2 if where == "middle" else -1]
    data = bytearray(path.read_bytes())
    data[hurt.position + hurt.size - 1] ^= 1
    path.write_bytes(data)
    log = LogDirs.open(copy).partition(golden_log.topic, golden_log.partition)
    with pytest.raises(CorruptBatch, match="CRC-32C does not match") as raised:
        list(scan_partition(log, log.log_start_offset, golden_log.high_watermark))
    assert raised.value.position == hurt.position
    assert raised.value.offset == hurt.base_offset
    assert raised.value.path == str(path)
    if where == "last":
        with pytest.raises(CorruptBatch, match="CRC-32C does not match"):
            _ = log.log_end_offset


def test_torn_tail_after_batches_that_are_too_old_is_not_read(tmp_path: Path) -> None:
    data = batch(0, [V2Record(n, 1000 + n, None, b"v") for n in range(8)])
    directory = write_segments(tmp_path, {0: data + bytes(100)})
    # the time index leads behind the last batch
    (directory / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", 1007, 7))
    log = open_log(directory)
    assert log.log_end_offset == 8
    request = ScanRequest(columns=("offset",), timestamp_from_ms=5000)
    assert not list(scan_partition(log, 0, 8, request))
