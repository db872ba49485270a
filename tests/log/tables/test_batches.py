"""The table `batches` holds what Kafka's DumpLogSegments prints, and misses no byte of a damaged file."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format import layout
from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, DumpedBatch, data_dir, dumped_segments, golden_logs

TYPES = {-1: None, 0: "CreateTime", 1: "LogAppendTime"}


def table(root: Path, topic: str | None = None, **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LogDirs.open(root).table("batches", topic, **asked).read_all().to_pylist()
    return rows


def by_segment(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(f"{row['topic']}-{row['partition']}/{row['segment']:020d}.log", []).append(row)
    return found


def moment(ms: int | None) -> datetime | None:
    return None if ms is None or ms == -1 else datetime.fromtimestamp(ms / 1000, UTC)


def said(batch: DumpedBatch) -> dict[str, Any]:
    """The columns that DumpLogSegments prints."""
    columns = {
        "last_offset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "codec": batch.codec,
        "crc_stored": batch.crc,
        "crc_computed": batch.crc,
        "valid": batch.is_valid,
        "max_timestamp": moment(batch.timestamp),
        "timestamp_type": TYPES[batch.timestamp_type],
        "error": None,
    }
    if batch.magic < 2:
        return columns
    return columns | {
        "base_offset": batch.base_offset,
        "record_count": batch.count,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "leader_epoch": batch.leader_epoch,
        "transactional": batch.transactional,
        "control": batch.control,
        "delete_horizon": moment(batch.delete_horizon),
    }


@pytest.mark.parametrize("release", [KAFKA_4_3, KAFKA_2_8])
def test_batches_equal_those_of_dump_log_segments(release: str) -> None:
    found = by_segment(table(data_dir(release)))
    expected = {name: batches for name, batches in dumped_segments(release).items() if batches}
    assert found.keys() == expected.keys()
    for name, batches in expected.items():
        want = [said(batch) for batch in batches]
        assert [{key: row[key] for key in one} for row, one in zip(found[name], want, strict=True)] == want, name


def test_crashed_log_holds_the_same_batches() -> None:
    found = by_segment(table(data_dir(crashed=True)))
    for log in golden_logs(KAFKA_4_3, crashed=True):
        for path in log.segments():
            want = [said(batch) for batch in log.batches(path)]
            rows = found.get(f"{log.name}/{path.name}", [])
            assert [{key: row[key] for key in one} for row, one in zip(rows, want, strict=True)] == want, path


def test_columns_without_a_value_in_legacy_formats_are_null() -> None:
    rows = table(data_dir(KAFKA_2_8), "v0-gzip", columns=["base_offset", "record_count", "max_timestamp", "codec"])
    assert rows
    assert {tuple(row.values()) for row in rows} == {(None, None, None, "gzip")}


COMPRESSED = [
    *((KAFKA_4_3, f"{client}-{codec}") for client in ("codec", "java") for codec in ("gzip", "snappy", "lz4", "zstd")),
    *((KAFKA_2_8, f"v1-{codec}") for codec in ("gzip", "snappy", "lz4", "none")),
    (KAFKA_4_3, "codec-none"),
]


@pytest.mark.parametrize(("release", "topic"), COMPRESSED)
def test_uncompressed_size_is_close_to_the_size_of_the_records(release: str, topic: str) -> None:
    """A record has at most 34 bytes beside its key, value and headers."""
    rows = table(data_dir(release), topic, columns=["size", "magic", "uncompressed_size", "compression_ratio"])
    records = [record for log in golden_logs(release, topic, crashed=False) for record in log.records()]
    least = sum(len(record["key"] or b"") + len(record["value"] or b"") for record in records)
    headers = sum(len(name.encode()) + len(value or b"") + 6 for r in records for name, value in r["headers"])
    assert least <= sum(row["uncompressed_size"] for row in rows) <= least + headers + 34 * len(records)
    for row in rows:
        stored = row["size"] - {2: 61, 1: 34}[row["magic"]]
        assert row["compression_ratio"] == (row["uncompressed_size"] / stored if stored else None)


@pytest.mark.local_only("it names local paths")
def test_uncompressed_size_of_gzip_equals_the_decompressed_size() -> None:
    for row in table(data_dir(), "java-gzip", columns=["file", "position", "size", "uncompressed_size"]):
        batch = Path(row["file"]).read_bytes()[row["position"] : row["position"] + row["size"]]
        assert row["uncompressed_size"] == len(gzip.decompress(batch[61:]))


def test_requested_columns_are_returned_in_order_and_unknown_ones_refused() -> None:
    (row, *_) = table(data_dir(), "headers", columns=["file", "position"])
    assert list(row) == ["file", "position"]
    assert row["file"].endswith("headers-0/00000000000000000000.log")
    with pytest.raises(OptionError, match="the table 'batches' has no column 'ofset'; its columns are topic, part"):
        table(data_dir(), columns=["ofset"])
    with pytest.raises(OptionError, match="there is no table 'batch'; there are records, batches, segments"):
        LogDirs.open(data_dir()).table("batch")


def damaged(data: bytes, numbers: random.Random) -> bytes:
    """Flipped bytes, a zeroed page, a cut, or garbage."""
    at = numbers.randrange(len(data))
    match numbers.randrange(4):
        case 0:
            return data[:at] + bytes([data[at] ^ numbers.randrange(1, 256)]) + data[at + 1 :]
        case 1:
            size = min(numbers.randrange(1, 600), len(data) - at)
            return data[:at] + bytes(size) + data[at + size :]
        case 2:
            return data[:at]
    return data[:at] + numbers.randbytes(numbers.randrange(1, 300)) + data[at:]


@pytest.mark.parametrize("partition", ["transactions-0", "codec-lz4-0", "compacted-0"])
def test_damaged_file_has_every_byte_in_one_row_and_every_whole_batch_valid(
    partition: str, golden_copy: Callable[..., Path]
) -> None:
    numbers = random.Random(partition)
    root = golden_copy(KAFKA_4_3, partition)
    path = max((root / partition).glob("*.log"), key=lambda file: file.stat().st_size)
    data = path.read_bytes()
    topic = partition.rpartition("-")[0]
    whole = [row for row in table(root, topic) if row["segment"] == int(path.stem)]
    for _ in range(60):
        changed = damaged(data, numbers)
        path.write_bytes(changed)
        rows = [row for row in table(root, topic) if row["segment"] == int(path.stem)]
        ends = [0, *(row["position"] + row["size"] for row in rows)]
        assert [row["position"] for row in rows] == ends[:-1]
        assert ends[-1] == len(changed)
        valid = {changed[row["position"] : row["position"] + row["size"]] for row in rows if row["valid"]}
        kept = [row for row in whole if data[row["position"] : row["position"] + row["size"]] in changed]
        missing = [row for row in kept if data[row["position"] : row["position"] + row["size"]] not in valid]
        assert missing == []
        assert all((row["error"] is None) == row["valid"] for row in rows)
        assert all(row["crc_stored"] == row["crc_computed"] for row in rows if row["valid"])
    path.write_bytes(data)


def test_damaged_batch_with_a_good_length_keeps_its_header_columns(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0")
    (path,) = (root / "codec-none-0").glob("*.log")
    second = table(root, "codec-none")[1]
    data = bytearray(path.read_bytes())
    data[second["position"] + 100] ^= 1
    path.write_bytes(data)
    bad = table(root, "codec-none")[1]
    assert bad.pop("error").startswith("CRC-32C does not match: the header says ")
    assert bad.pop("crc_computed") != second.pop("crc_computed")
    assert bad.pop("valid") is False
    second.pop("valid"), second.pop("error")
    assert bad == second


def test_damaged_batch_keeps_a_timestamp_after_the_year_9999(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0")
    (path,) = (root / "codec-none-0").glob("*.log")
    data, at = bytearray(path.read_bytes()), table(root, "codec-none")[1]["position"]
    struct.pack_into(">q", data, at + layout.MAX_TIMESTAMP_AT, 300_000_000_000_000)
    path.write_bytes(data)
    found = LogDirs.open(root).table("batches", "codec-none", columns=("valid", "max_timestamp")).read_all()
    assert found.column("valid")[1].as_py() is False
    assert found.column("max_timestamp").cast("int64")[1].as_py() == 300_000_000_000_000_000


def test_torn_tail_is_one_row_with_its_error(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0", crashed=False)
    (root / "recovery-point-offset-checkpoint").unlink()
    (path,) = (root / "codec-none-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-3])
    *_, last = table(root, "codec-none")
    assert last["error"].startswith("a torn tail, which the next start of a broker truncates: a batch of ")
    assert last["last_offset"] is None
