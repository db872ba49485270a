"""mode=DROPMALFORMED: damage is passed over up to the next good batch, and every good record around it is given."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import CRC_AT, LENGTH_AT, MAGIC_AT, RECORD_COUNT_AT, Codec
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.write.record_encoder import BatchParams
from kafkalog_spark.store.local_store import LOCAL
from tests.golden_data import KAFKA_4_3
from tests.log.helpers.encoded_batches import encode_batches

Damage = Callable[[bytearray, BatchHeader], None]


def flip_a_byte_of_the_records(data: bytearray, batch: BatchHeader) -> None:
    data[batch.position + batch.size - 5] ^= 0xFF


def flip_the_crc(data: bytearray, batch: BatchHeader) -> None:
    data[batch.position + CRC_AT] ^= 0x01


def set_the_length(length: int) -> Damage:
    def damage(data: bytearray, batch: BatchHeader) -> None:
        struct.pack_into(">i", data, batch.position + LENGTH_AT, length)

    return damage


def set_the_magic(data: bytearray, batch: BatchHeader) -> None:
    data[batch.position + MAGIC_AT] = 7


def zero_the_batch(data: bytearray, batch: BatchHeader) -> None:
    data[batch.position : batch.end] = bytes(batch.size)


def lie_about_the_count(data: bytearray, batch: BatchHeader) -> None:
    # with a valid CRC: only the records themselves tell
    from kafkalog_spark.format.batch_header import compute_crc

    count = struct.unpack_from(">i", data, batch.position + RECORD_COUNT_AT)[0]
    struct.pack_into(">i", data, batch.position + RECORD_COUNT_AT, count + 1)
    crc = compute_crc(bytes(data[batch.position : batch.end]), 2)
    struct.pack_into(">I", data, batch.position + CRC_AT, crc)


DAMAGES = [
    flip_a_byte_of_the_records,
    flip_the_crc,
    set_the_length(0),
    set_the_length(-1),
    set_the_length(2**31 - 1),
    set_the_length(100),
    set_the_magic,
    zero_the_batch,
    lie_about_the_count,
]


def batches_of(path: Path) -> list[BatchHeader]:
    with SegmentFile.open(LOCAL, str(path.parent), SegmentFiles(int(path.name[:20]), path.name)) as file:
        return list(file.headers())


def offsets(log: PartitionLog, *, drop: bool) -> tuple[list[int], ScanStatistics]:
    statistics = ScanStatistics()
    request = ScanRequest(columns=("value", "offset"), drop_malformed=drop)
    found: list[int] = []
    for batch in scan_partition(log, log.log_start_offset, log.log_end_offset, request, statistics=statistics):
        found += batch.column("offset").to_pylist()
    return found, statistics


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__qualname__.replace(".<locals>.damage", ""))
@pytest.mark.parametrize("topic", ["codec-none-0", "codec-lz4-0", "java-zstd-0", "segments-0"])
def test_drop_malformed_skips_only_the_damaged_batch(
    golden_copy: Callable[..., Path], topic: str, damage: Damage, tmp_path: Path
) -> None:
    directory = golden_copy(KAFKA_4_3, topic)
    path = min((directory / topic).glob("*.log"))
    batches = batches_of(path)
    data = bytearray(path.read_bytes())
    name, partition = topic.rsplit("-", 1)
    everything, _ = offsets(LogDirs.open(directory).partition(name, int(partition)), drop=False)
    for victim in (batches[0], batches[len(batches) // 2]):
        damaged = bytearray(data)
        damage(damaged, victim)
        path.write_bytes(damaged)
        log = LogDirs.open(directory).partition(name, int(partition))
        with pytest.raises(CorruptBatch) if damage is not set_the_magic else pytest.raises(Exception, match="magic"):
            offsets(log, drop=False)
        found, statistics = offsets(log, drop=True)
        lost = range(victim.base_offset, victim.last_offset + 1)
        assert found == [offset for offset in everything if offset not in lost]
        assert [error.position for error in statistics.dropped] == [victim.position]


def test_batch_inside_a_value_of_a_damaged_batch_is_not_read(tmp_path: Path) -> None:
    inner = next(encode_batches(pa.table({"value": [b"not a record of this log"]}), 5, BatchParams(), now_ms=1)).data
    values = [[b"first"], [b"x" * 40 + inner + b"y" * 40], [b"last"]]
    parts = [
        next(encode_batches(pa.table({"value": value}), offset, BatchParams(codec=Codec.NONE), now_ms=1)).data
        for offset, value in enumerate(values)
    ]
    middle = bytearray(parts[1])
    middle[-1] ^= 0xFF  # the CRC is wrong now, the length is right
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(parts[0] + bytes(middle) + parts[2])
    found, statistics = offsets(LogDirs.open(tmp_path).locations["t", 0].open(pass_over_damage=True), drop=True)
    assert found == [0, 2]
    assert len(statistics.dropped) == 1


def test_truncated_closed_segment_loses_its_end_only(
    golden_copy: Callable[..., Path],
) -> None:
    directory = golden_copy(KAFKA_4_3, "segments-1")
    first, second = sorted((directory / "segments-1").glob("*.log"))[:2]
    last = batches_of(first)[-1]
    first.write_bytes(first.read_bytes()[: last.position + last.size // 2])
    log = LogDirs.open(directory).partition("segments", 1)
    with pytest.raises(CorruptBatch, match="the file ends"):
        offsets(log, drop=False)
    found, _ = offsets(log, drop=True)
    assert found == [*range(last.base_offset), *range(int(second.name[:20]), 6000)]


def test_segment_copied_over_another_loses_no_record_of_the_next(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "segments-0")
    first, second = sorted((root / "segments-0").glob("*.log"))[:2]
    everything, _ = offsets(LogDirs.open(root).partition("segments", 0), drop=False)
    first.write_bytes(second.read_bytes())
    log = LogDirs.open(root).partition("segments", 0)
    found, statistics = offsets(log, drop=True)
    assert found == [offset for offset in everything if offset >= int(second.stem)]
    assert [error.position for error in statistics.dropped] == [0]
