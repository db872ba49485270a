"""Producer snapshots: what Kafka wrote, byte for byte, and everything else."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptSnapshot, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.producer_snapshot import (
    ProducerEntry,
    format_producer_snapshot,
    parse_producer_snapshot,
    read_producer_snapshot,
    write_producer_snapshot,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged

GOLDEN_FILES = sorted(golden_data.GOLDEN.glob("*/*/*/*.snapshot"))
ENTRIES = [
    ProducerEntry(3, 0, 97, 372, 9, 1795252410490, 0, -1),
    ProducerEntry(2, 1, -1, -1, 0, 1795252470543, 4, 390),
]


def _name(path) -> str:
    return "/".join(path.relative_to(golden_data.GOLDEN).parts)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=_name)
def test_producer_snapshot_round_trips_byte_for_byte(path, tmp_path):
    entries = read_producer_snapshot(path)
    write_producer_snapshot(tmp_path / path.name, entries)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


# Of a compacted log the batches that a snapshot speaks of may be gone.
NOT_COMPACTED = [log for log in golden_data.golden_logs(golden_data.KAFKA_4_3) if log.topic != "compacted"]


@pytest.mark.parametrize("log", NOT_COMPACTED, ids=str)
def test_golden_snapshot_holds_each_producers_last_batch(log):
    """Oracle: the batches that DumpLogSegments printed, up to the offset in the snapshot's name."""
    snapshots = sorted(log.directory.glob("*.snapshot"))
    batches = [batch for path in log.segments() for batch in log.batches(path)]
    for path in snapshots:
        before = [b for b in batches if b.producer_id >= 0 and b.last_offset < int(path.stem)]
        last = {b.producer_id: b for b in before if not b.control}
        for entry in read_producer_snapshot(path):
            if entry.last_sequence >= 0 and entry.producer_id in last:
                batch = last[entry.producer_id]
                assert (entry.first_offset, entry.last_offset) == (batch.base_offset, batch.last_offset)
                assert (entry.first_sequence, entry.last_sequence) == (batch.base_sequence, batch.last_sequence)


@pytest.mark.parametrize("log", golden_data.golden_logs(topic="transactions"), ids=str)
def test_golden_snapshot_holds_the_transactions_open_at_its_offset(log):
    batches = [batch for path in log.segments() for batch in log.batches(path)]
    found = 0
    for path in log.directory.glob("*.snapshot"):
        still_open: dict[int, int] = {}
        for batch in batches:
            if batch.transactional and batch.last_offset < int(path.stem):
                if batch.control:
                    still_open.pop(batch.producer_id, None)
                else:
                    still_open.setdefault(batch.producer_id, batch.base_offset)
        entries = read_producer_snapshot(path)
        assert {e.producer_id: e.transaction_first_offset for e in entries if e.has_open_transaction} == still_open
        found += len(still_open)
    assert found, "a snapshot without open transactions would prove nothing"


def test_sequences_wrap_from_the_largest_to_0():
    assert ProducerEntry(1, 0, 1, 100, 3, 0, -1, -1).first_sequence == 2**31 - 2
    assert ProducerEntry(1, 0, 3, 100, 3, 0, -1, -1).first_sequence == 0
    assert ProducerEntry(1, 0, -1, -1, 0, 0, -1, -1).first_sequence == -1


def test_snapshot_without_producers_has_ten_bytes():
    assert len(format_producer_snapshot([])) == 10
    assert parse_producer_snapshot(format_producer_snapshot([])) == []


def _with_crc(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


@pytest.mark.parametrize(
    ("data", "error", "position", "text"),
    [
        (b"", CorruptSnapshot, 0, "at least 10 bytes, this one has 0"),
        (_with_crc(b"\0\0\0\0", version=2), UnsupportedFormat, 0, "version 2"),
        (format_producer_snapshot(ENTRIES)[:-1], CorruptSnapshot, 2, "CRC-32C"),
        (_with_crc(struct.pack(">i", 2) + bytes(46)), CorruptSnapshot, 6, "2 entries need 102 bytes, the file has 56"),
        (_with_crc(struct.pack(">i", -1)), CorruptSnapshot, 6, "-1 entries"),
        (_with_crc(struct.pack(">i", 2**31 - 1)), CorruptSnapshot, 6, "2147483647 entries"),
    ],
)
def test_damaged_snapshot_is_an_error_with_its_position(data, error, position, text, tmp_path):
    path = tmp_path / "00000000000000000007.snapshot"
    path.write_bytes(data)
    with pytest.raises(error, match=text) as caught:
        read_producer_snapshot(path)
    assert (caught.value.position, caught.value.path) == (position, str(path))


def test_any_damage_is_detected():
    for what, data in damaged(format_producer_snapshot(ENTRIES)):
        with pytest.raises(KafkalogError):
            pytest.fail(f"{what}: {parse_producer_snapshot(data)}")


def test_missing_snapshot_is_distinguished_from_an_empty_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_producer_snapshot(tmp_path / "none")


I16, I32, I64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


@given(st.lists(st.builds(ProducerEntry, I64, I16, I32, I64, I32, I64, I32, I64), max_size=20))
def test_every_snapshot_round_trips(entries):
    assert parse_producer_snapshot(format_producer_snapshot(entries)) == entries
