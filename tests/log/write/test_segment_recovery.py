from __future__ import annotations

import shutil
import struct

import numpy as np
import pytest

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read import header_windows
from kafkalog_spark.log.write.encoded_batch import split_batches
from kafkalog_spark.log.write.ordered_windows import OffsetOverflow
from kafkalog_spark.log.write.segment_recovery import recover_segment
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.batch_builder import V2Record, batch, sealed

# As in tests/log/write/test_segment_writer.py: made with index.interval.bytes=512, the others with Kafka's default.
DENSE = ("codec-", "java-", "out-of-order", "transactions", "compacted")
FILES = (".log", ".index", ".timeindex")
NAME = "0" * 20
NOW = 1_700_000_000_000


def batches(*offsets, size=0, **fields):
    return b"".join(batch(o, [V2Record(o, NOW + o, None, bytes(size))], **fields) for o in offsets)


def write(directory, data, base=0):
    (directory / f"{base:020d}.log").write_bytes(data)


def files(directory, base=0):
    return [(directory / f"{base:020d}{suffix}").read_bytes() for suffix in FILES]


@pytest.fixture(params=["plain", "swept"])
def scan(request, monkeypatch):
    """Both scans, the swept one in small windows so that batches lie across their borders."""
    monkeypatch.setattr(header_windows, "_WINDOW_BYTES", 700)
    monkeypatch.setattr(header_windows, "_TABLE_ROWS", 3)
    monkeypatch.setattr(header_windows, "_PLAIN_BELOW", 1 << 30 if request.param == "plain" else 0)


@pytest.mark.parametrize("log", golden_logs(release=KAFKA_4_3, crashed=False), ids=str)
def test_rebuilt_indexes_equal_kafkas(log, tmp_path, scan):
    for path in log.segments():
        shutil.copyfile(path, tmp_path / path.name)
        dense = log.topic.startswith(DENSE)
        seen: list = []
        recovered = recover_segment(
            tmp_path,
            int(path.stem),
            512 if dense else 4096,
            lambda window: seen.extend(window.table[:, HeaderColumn.LAST_OFFSET].tolist()),  # noqa: B023 (called here and now)
        )
        assert recovered.damage is None
        assert recovered.truncated_bytes == 0
        assert seen == [encoded.header.last_offset for encoded in split_batches(path.read_bytes())]
        for suffix in FILES:
            written = (tmp_path / path.name).with_suffix(suffix).read_bytes()
            assert written == path.with_suffix(suffix).read_bytes(), f"{path.stem}{suffix}"


@pytest.mark.parametrize("log", golden_logs(crashed=True), ids=str)
def test_recovery_of_a_crashed_segment_equals_kafkas_recovery(log, tmp_path):
    """The clean golden directory is the crashed one after its restart."""
    (clean,) = [c for c in golden_logs(release=log.release, topic=log.topic, crashed=False) if c.name == log.name]
    path, recovered = log.segments()[-1], clean.segments()[-1]
    (tmp_path / path.name).write_bytes(path.read_bytes())
    segment = recover_segment(tmp_path, int(path.stem), 512 if log.topic.startswith(DENSE) else 4096)
    assert segment.truncated_bytes == 0
    for suffix in FILES:
        assert (tmp_path / path.name).with_suffix(suffix).read_bytes() == recovered.with_suffix(suffix).read_bytes()


@pytest.mark.parametrize("interval", [0, 100, 4096])
def test_rebuilt_indexes_equal_the_writers(tmp_path, scan, interval):
    rng = np.random.default_rng(7)
    (tmp_path / "written").mkdir()
    (tmp_path / "recovered").mkdir()
    offset, data = 40, b""
    for _ in range(300):
        size, offset = int(rng.integers(0, 300)), offset + int(rng.integers(0, 3))
        timestamp = int(rng.integers(-1, 50))
        data += batch(offset, [V2Record(offset, timestamp, None, bytes(size))])
        offset += 1
    with SegmentWriter.create(tmp_path / "written", 40, index_interval_bytes=interval) as writer:
        for encoded in split_batches(data):
            writer.append(encoded)
    write(tmp_path / "recovered", data, 40)
    recovered = recover_segment(tmp_path / "recovered", 40, interval)
    assert files(tmp_path / "recovered", 40) == files(tmp_path / "written", 40)
    assert (recovered.next_offset, recovered.size, recovered.largest_timestamp) == (offset, len(data), 49)


def test_log_cut_at_any_byte_is_truncated_after_its_last_whole_batch(tmp_path, scan):
    parts = [batches(0), batches(1, size=20), batches(2, 3, 4)]
    whole = b"".join(parts)
    ends = [0, *np.cumsum([len(encoded.data) for encoded in split_batches(whole)]).tolist()]
    for size in range(len(whole) + 1):
        write(tmp_path, whole[:size])
        recovered = recover_segment(tmp_path, 0, 0)
        kept = max(end for end in ends if end <= size)
        assert (recovered.size, recovered.truncated_bytes) == (kept, size - kept)
        assert recovered.next_offset == ends.index(kept)
        assert (recovered.damage is None) == (kept == size)
        assert files(tmp_path)[0] == whole[:kept]
        assert len(files(tmp_path)[1]) == 8 * max(ends.index(kept) - 1, 0)


@pytest.mark.parametrize("size", [0, 5000])
def test_flipped_bit_under_the_crc_truncates_the_batch_and_all_following(tmp_path, scan, size):
    first, second, third = batches(0), batches(1, size=size), batches(2)
    for at in [17, 21, 30, 43, 57, 61, len(second) - 1]:
        damaged = bytearray(second)
        damaged[at] ^= 4
        write(tmp_path, first + damaged + third)
        recovered = recover_segment(tmp_path, 0, 4096)
        assert recovered.next_offset == 1
        assert recovered.truncated_bytes == len(second) + len(third)
        assert "CRC-32C" in str(recovered.damage)
        assert recovered.damage is not None
        assert recovered.damage.position == len(first)
        assert files(tmp_path)[0] == first


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (bytes(100), "zeros where a batch should begin"),
        (bytes(5), "the file ends 5 bytes into a batch header"),
        (struct.pack(">qiib", 1, 3, 0, 2) + bytes(80), "batch length 3"),
        (struct.pack(">qiib", 1, 2**31 - 1, 0, 2) + bytes(80), "the file ends after"),
        (struct.pack(">qiib", 1, 90, 0, 7) + bytes(90), "magic 7"),
        (batches(0), "offsets 0 to 0, expected 1 or higher"),
        (sealed(batches(1)[:23] + struct.pack(">i", -1) + batches(1)[27:]), "offsets 1 to 0"),
    ],
    ids=["zeros", "short", "small length", "large length", "magic", "offsets back", "negative delta"],
)
def test_invalid_batch_is_truncated_and_named(tmp_path, scan, tail, message):
    for head in (batches(0), batches(0, size=2000)):
        write(tmp_path, head + tail)
        recovered = recover_segment(tmp_path, 0, 4096)
        assert message in str(recovered.damage)
        assert f"{NAME}.log" in str(recovered.damage)
        assert files(tmp_path)[0] == head


def test_offset_too_large_for_an_index_is_not_damage(tmp_path, scan):
    """The segment is to be split: nothing of it is cut."""
    for head in (batches(0), batches(0, size=2000)):
        write(tmp_path, head + batches(2**31))
        with pytest.raises(OffsetOverflow, match=f"the batch at byte {len(head)} ends with offset {2**31}"):
            recover_segment(tmp_path, 0, 4096)
        assert (tmp_path / f"{NAME}.log").read_bytes() == head + batches(2**31)


def test_damage_that_must_not_be_truncated_raises_and_changes_nothing(tmp_path, scan):
    data = batches(0, 1) + bytes(30)
    write(tmp_path, data)
    with pytest.raises(CorruptBatch):
        recover_segment(tmp_path, 0, 4096, may_truncate=False)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.log"]
    assert (tmp_path / f"{NAME}.log").read_bytes() == data


def test_progress_sums_up_to_the_valid_bytes(tmp_path, scan):
    data = batches(*range(50), size=90)
    write(tmp_path, data + b"torn")
    seen: list = []
    recover_segment(tmp_path, 0, 4096, on_bytes=seen.append)
    assert sum(seen) == len(data)


def test_recovery_window_returns_the_bytes_of_each_batch(tmp_path, scan):
    data = batches(*range(30), size=50)
    write(tmp_path, data)
    seen: list = []
    recover_segment(
        tmp_path,
        0,
        4096,
        lambda window: seen.extend(bytes(window.batch(row)) for row in range(len(window.table))),
    )
    assert b"".join(seen) == data


def test_missing_log_creates_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        recover_segment(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []
