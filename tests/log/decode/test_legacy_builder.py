"""The builder is held to real Kafka: plain messages byte for byte, wrappers by framing and what they decode to."""

from __future__ import annotations

import pytest

from tests.golden_data import KAFKA_2_8, golden_logs
from tests.log.helpers.legacy_builder import GZIP, LZ4, SNAPPY, LegacyRecord, message_set, wrapper
from tests.log.helpers.plain_decoder import LOG_APPEND_TIME, Record, decode_batches, decode_log, decode_records

RECORDS = [LegacyRecord(40, b"a", b"x" * 70_000, 1000), LegacyRecord(41, None, b"", 900), LegacyRecord(45, b"", None)]


@pytest.mark.parametrize("topic", ["v0-none", "v1-none"])
def test_plain_messages_equal_kafkas_bytes(topic: str) -> None:
    (log,) = golden_logs(release=KAFKA_2_8, topic=topic)
    for path in log.segments():
        decoded = decode_records(path.read_bytes())
        rebuilt = [LegacyRecord(r.offset, r.key, r.value, r.timestamp) for r in decoded]
        assert message_set(int(topic[1]), rebuilt) == path.read_bytes()


@pytest.mark.parametrize("topic", ["v0-lz4", "v1-lz4", "v0-snappy", "v1-snappy"])
def test_wrapper_is_framed_as_by_kafka(topic: str) -> None:
    """Magic, flags and header checksum of lz4 (wrong in v0), the 16 bytes of xerial; the codecs' output may differ."""
    (log,) = golden_logs(release=KAFKA_2_8, topic=topic)
    path = log.segments()[0]
    magic, codec, framing = int(topic[1]), (LZ4 if "lz4" in topic else SNAPPY), (7 if "lz4" in topic else 16)
    value_at = (26, 34)[magic]
    for batch in decode_log(path):
        records = [LegacyRecord(r.offset, r.key, r.value, r.timestamp) for r in batch.records]
        ours = wrapper(magic, codec, records)
        theirs = path.read_bytes()[batch.position : batch.position + batch.size]
        assert ours[value_at : value_at + framing] == theirs[value_at : value_at + framing]
        assert decode_records(ours) == list(batch.records)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_wrapper_decodes_to_its_records(magic: int, codec: int) -> None:
    (batch,) = decode_batches(wrapper(magic, codec, RECORDS))
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (40, 45, 1000 if magic == 1 else -1)
    assert list(batch.records) == [
        Record(r.offset, r.timestamp if magic == 1 else -1, 0 if magic == 1 else -1, r.key, r.value) for r in RECORDS
    ]


def test_inner_offsets_of_a_compacted_wrapper_need_not_start_at_zero() -> None:
    data = wrapper(1, GZIP, RECORDS, relative_to=30)
    assert [r.offset for r in decode_records(data)] == [40, 41, 45]
    assert data != wrapper(1, GZIP, RECORDS)


def test_log_append_time_of_a_wrapper_applies_to_all_its_messages() -> None:
    records = decode_records(wrapper(1, SNAPPY, RECORDS, log_append_time=5000, xerial=False))
    assert {(r.timestamp, r.timestamp_type) for r in records} == {(5000, LOG_APPEND_TIME)}
