"""Message sets of producers become v2 batches with the same records.

tests/broker/old_versions compares the error codes with those of a real Kafka; this file has the cases that no client
in that scenario can send."""

from __future__ import annotations

import struct
from typing import Any

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append import message_set as message_set_reader
from kafkalog_broker.storage.append.message_set_validation import validate_message_set
from kafkalog_broker.storage.append.validation_budget import MAX_RECORDS
from kafkalog_spark.format.layout import MAX_DECOMPRESSED
from tests.broker.storage.helpers.stored_logs import HOUR, NOW, log_config, sent
from tests.log.helpers.legacy_builder import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    LegacyRecord,
    compressed,
    message,
    message_set,
    wrapper,
)
from tests.log.helpers.plain_decoder import Batch, decode_batches
from tests.searches import examples

RECORDS = st.lists(
    st.builds(
        LegacyRecord,
        offset=st.just(0),
        key=st.none() | st.binary(max_size=300),
        value=st.none() | st.binary(max_size=300),
        timestamp=st.just(-1) | st.integers(0, NOW + HOUR),
    ),
    min_size=1,
    max_size=30,
)


def made(data: bytes, **config: Any) -> Batch:
    found = validate_message_set(memoryview(data), log_config(**config), NOW)
    assert found is not None
    (batch,) = decode_batches(bytes(found.data))
    return batch


def refused(data: bytes, **config: Any) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        made(data, **config)
    return caught.value.code


def numbered(records: list[LegacyRecord]) -> list[LegacyRecord]:
    return [LegacyRecord(n, one.key, one.value, one.timestamp) for n, one in enumerate(records)]


@settings(max_examples=examples(200))
@given(records=RECORDS, magic=st.sampled_from((0, 1)), codec=st.sampled_from((NONE, GZIP, SNAPPY, LZ4)), data=st.data())
def test_message_set_becomes_a_batch_of_the_same_records(
    records: list[LegacyRecord], magic: int, codec: int, data: st.DataObject
) -> None:
    records = numbered(records)
    if codec == NONE:
        offsets = data.draw(st.lists(st.integers(0, 2**40), min_size=len(records), max_size=len(records)))
        given_ = [LegacyRecord(o, r.key, r.value, r.timestamp) for o, r in zip(offsets, records, strict=True)]
        batch = made(message_set(magic, given_))
    else:
        batch = made(wrapper(magic, codec, records, xerial=data.draw(st.booleans())))
    assert (batch.codec, batch.base_offset, batch.last_offset) == (codec, 0, len(records) - 1)
    times = [one.timestamp if magic else -1 for one in records]
    assert [(one.offset, one.key, one.value, one.timestamp, one.headers) for one in batch.records] == [
        (n, one.key, one.value, time, ()) for n, (one, time) in enumerate(zip(records, times, strict=True))
    ]
    assert (batch.base_timestamp, batch.max_timestamp) == (times[0], max(times))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_for_a_log_append_time_topic_gets_the_broker_time(magic: int) -> None:
    data = message_set(magic, [LegacyRecord(0, b"k", b"v", 5), LegacyRecord(1, b"k", b"w", 7)])
    batch = made(data, message_timestamp_type="LogAppendTime")
    assert [(one.timestamp, one.timestamp_type) for one in batch.records] == [(NOW, 1), (NOW, 1)]
    assert (batch.base_timestamp, batch.max_timestamp) == (5 if magic else -1, NOW)


@pytest.mark.parametrize(("compression_type", "codec"), [("producer", LZ4), ("gzip", GZIP), ("uncompressed", NONE)])
def test_message_set_is_stored_with_the_compression_type_of_the_topic(compression_type: str, codec: int) -> None:
    data = wrapper(0, LZ4, [LegacyRecord(n, b"k", b"v" * 50) for n in range(20)])
    batch = made(data, compression_type=compression_type)
    assert (batch.codec, len(batch.records)) == (codec, 20)


def test_message_set_timestamp_beyond_the_topics_bounds_is_refused() -> None:
    late = message(1, 0, b"k", b"v", NOW + HOUR + 1)
    assert refused(late) is ErrorCode.invalid_timestamp
    assert refused(message(1, 0, b"k", b"v", -2)) is ErrorCode.invalid_timestamp
    early = message(1, 0, b"k", b"v", NOW - 2 * HOUR)
    assert made(early).max_timestamp == NOW - 2 * HOUR
    assert refused(early, message_timestamp_before_max_ms=HOUR) is ErrorCode.invalid_timestamp
    assert made(late, message_timestamp_type="LogAppendTime").max_timestamp == NOW


def test_v2_batch_in_an_old_produce_request_is_accepted_as_by_kafka() -> None:
    assert [one.key for one in made(sent(3)).records] == [b"k"] * 3


def test_message_set_without_a_complete_message_is_not_appended() -> None:
    config = log_config()
    whole = message(1, 0, b"k", b"v", NOW)
    for data in (b"", whole[:5], whole[:11], whole[:17], whole[:-1]):
        assert validate_message_set(memoryview(data), config, NOW) is None


def test_wrapper_above_the_decompression_limit_is_invalid_record() -> None:
    bomb = compressed(GZIP, bytes(MAX_DECOMPRESSED + 1))
    assert refused(message(1, 0, None, bomb, NOW, GZIP)) is ErrorCode.invalid_record


def test_message_set_above_the_record_limit_is_invalid_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_RECORDS == 1_000_000
    monkeypatch.setattr(message_set_reader, "MAX_RECORDS", 10)
    ten = [LegacyRecord(n, None, None, NOW) for n in range(10)]
    assert len(made(message_set(1, ten)).records) == 10
    assert refused(message_set(1, [*ten, ten[0]])) is ErrorCode.invalid_record
    assert refused(wrapper(1, GZIP, [*ten, ten[0]])) is ErrorCode.invalid_record


def test_message_set_whose_batch_exceeds_max_message_bytes_is_refused() -> None:
    data = message_set(1, [LegacyRecord(n, None, b"v" * 400, NOW) for n in range(3)])
    assert refused(data, max_message_bytes=1000) is ErrorCode.message_too_large
    assert len(made(data, max_message_bytes=1400).records) == 3


@settings(max_examples=examples(300))
@given(data=st.data(), magic=st.sampled_from((0, 1)), codec=st.sampled_from((NONE, GZIP)))
def test_damaged_message_set_gives_a_readable_batch_or_an_error(data: st.DataObject, magic: int, codec: int) -> None:
    """Within a wrapper, the CRC does not reveal the damage of its messages."""
    inner = bytearray(message_set(magic, [LegacyRecord(n, b"key", b"value", NOW) for n in range(3)]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(inner) - 1))
        inner[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        inner = inner or bytearray(b"x")
    damaged = bytes(inner)
    if codec:
        damaged = message(magic, 0, None, compressed(GZIP, damaged), NOW, GZIP)
    try:
        found = validate_message_set(memoryview(damaged), log_config(), NOW)
    except BrokerError:
        return
    assert found is None or list(decode_batches(bytes(found.data)))


def test_message_size_beyond_the_buffer_is_not_read() -> None:
    whole = message(1, 0, b"k", b"v", NOW)
    huge = bytearray(whole)
    struct.pack_into(">i", huge, 8, 2**31 - 1)
    assert validate_message_set(memoryview(bytes(huge)), log_config(), NOW) is None


def framed(frame: bytes, magic: int = 1) -> bytes:
    return message(magic, 0, None, frame, NOW, LZ4)


@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_frame_header_checksum_is_checked_in_v1_and_ignored_in_v0(store_size: bool) -> None:
    """A frame with one flipped bit is refused. In v0 the checksum is ignored (KAFKA-3160)."""
    inner = message_set(1, [LegacyRecord(0, b"k", b"v" * 50, NOW)])
    frame = bytearray(lz4.frame.compress(inner, store_size=store_size, block_linked=False))
    assert made(framed(bytes(frame))).records[0].value == b"v" * 50
    frame[14 if store_size else 6] ^= 1
    assert refused(framed(bytes(frame))) == ErrorCode.invalid_record
    old = bytearray(lz4.frame.compress(message_set(0, [LegacyRecord(0, b"k", b"v", -1)]), store_size=False))
    old[6] ^= 1
    assert made(framed(bytes(old), 0)).records[0].value == b"v"
