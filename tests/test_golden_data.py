"""The oracle itself: manifests, dumps and files agree with each other."""

from __future__ import annotations

import zlib

import crc32c
import pytest

from tests import golden_data
from tests.golden_data import GoldenLog, golden_logs


@pytest.mark.parametrize("log", golden_logs(), ids=str)
def test_manifest_has_as_many_rows_as_the_consumer_counted(log: GoldenLog) -> None:
    rows = log.records()
    assert len(rows) == log.record_count
    assert len(log.records(committed_only=True)) == log.committed_count
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    assert log.log_start_offset <= offsets[0]
    assert offsets[-1] < log.high_watermark


@pytest.mark.parametrize("log", golden_logs(), ids=str)
def test_dump_covers_every_byte_of_every_segment(log: GoldenLog) -> None:
    for segment in log.segments():
        position = 0
        for batch in log.batches(segment):
            assert batch.is_valid
            assert batch.position == position
            position += batch.size
        assert position == segment.stat().st_size


@pytest.mark.parametrize("log", golden_logs(), ids=str)
def test_every_batch_has_the_crc_in_the_dump(log: GoldenLog) -> None:
    for segment in log.segments():
        data = segment.read_bytes()
        for batch in log.batches(segment):
            end = batch.position + batch.size
            if batch.magic == 2:
                stored = data[batch.position + 17 : batch.position + 21]
                computed = crc32c.crc32c(data[batch.position + 21 : end])
            else:
                stored = data[batch.position + 12 : batch.position + 16]
                computed = zlib.crc32(data[batch.position + 16 : end])
            assert int.from_bytes(stored, "big") == batch.crc == computed


@pytest.mark.parametrize("log", [log for log in golden_logs() if log.topic.startswith("v0")], ids=str)
def test_format_without_timestamps_has_timestamp_minus_one(log: GoldenLog) -> None:
    assert {(row["timestamp"], row["timestampType"]) for row in log.records()} == {(-1, -1)}


def test_error_in_the_dump_is_not_ignored() -> None:
    with pytest.raises(ValueError, match="not known here: Found timestamp mismatch"):
        golden_data.parse_dump(["Dumping a-0/0.log", "Found timestamp mismatch in :a-0/0.timeindex"])


def test_unknown_golden_topic_is_an_error() -> None:
    with pytest.raises(LookupError, match="no golden log"):
        golden_logs(topic="no-such-topic")
