"""The oracle itself is held to what Kafka's consumers and DumpLogSegments said about the golden logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_data import GoldenLog, golden_logs
from tests.log.helpers.plain_decoder import Malformed, Record, decode_batches, decode_log

LOGS = golden_logs()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def consumed(log: GoldenLog) -> list[Record]:
    """The manifest's rows of one partition."""
    return [
        Record(
            row["offset"], row["timestamp"], row["timestampType"], row["key"], row["value"],
            tuple((name, value) for name, value in row["headers"]),
        )
        for row in log.records()
    ]  # fmt: skip


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_golden_records_equal_those_of_kafkas_consumer(log: GoldenLog) -> None:
    decoded = [
        record
        for path in log.segments()
        for batch in decode_log(path)
        if not batch.is_control
        for record in batch.records
        if record.offset >= log.log_start_offset
    ]
    assert len(decoded) == log.record_count
    assert decoded == consumed(log)


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_golden_batches_equal_those_of_dump_log_segments(log: GoldenLog) -> None:
    for path in log.segments():
        batches = decode_log(path)
        assert [
            (b.position, b.size, b.magic, b.base_offset, b.last_offset, b.crc, CODECS[b.codec], b.max_timestamp)
            for b in batches
        ] == [
            (d.position, d.size, d.magic, d.base_offset, d.last_offset, d.crc, d.codec, d.timestamp)
            for d in log.batches(path)
        ]
        for batch, dumped in zip(batches, log.batches(path), strict=True):
            if batch.magic == 2:
                assert (
                    len(batch.records), batch.base_sequence, batch.producer_id, batch.producer_epoch,
                    batch.leader_epoch, batch.is_transactional, batch.is_control,
                ) == (
                    dumped.count, dumped.base_sequence, dumped.producer_id, dumped.producer_epoch,
                    dumped.leader_epoch, dumped.transactional, dumped.control,
                )  # fmt: skip


@pytest.mark.parametrize("topic", ["codec-none", "java-lz4", "v0-lz4", "v1-snappy"])
def test_flipped_byte_under_the_crc_is_malformed(topic: str) -> None:
    (log,) = golden_logs(topic=topic, crashed=False)
    path: Path = log.segments()[0]
    first = log.batches(path)[0]
    data = path.read_bytes()[: first.size]
    protected_from = 17 if first.magic == 2 else 12  # the CRC field and all behind it
    for at in range(protected_from, len(data), 7):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises(Malformed):
            list(decode_batches(damaged))


def test_batch_cut_short_is_malformed() -> None:
    (log,) = golden_logs(topic="codec-zstd")
    path = log.segments()[0]
    data = path.read_bytes()[: log.batches(path)[0].size]
    for length in range(1, len(data), 5):
        with pytest.raises(Malformed):
            list(decode_batches(data[:length]))
