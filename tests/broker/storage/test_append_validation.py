from __future__ import annotations

import gzip
import struct

import pytest

from broker.errors import BrokerError, ErrorCode
from broker.storage.append_validation import InvalidRecordErrors, validate_batch
from kafkalog_spark.log import layout
from kafkalog_spark.log.batch_header import check_crc, parse_header
from tests.broker.storage.storage_helpers import NOW, log_config, sent
from tests.log.batch_builder import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    TRANSACTIONAL,
    ZSTD,
    V2Record,
    batch,
    encoded,
    sealed,
)
from tests.log.plain_decoder import decode_records

CODEC_IDS = sorted(CODECS.values())
HOUR = 3_600_000


def validate(data, **config):
    return validate_batch(data, log_config(**config), NOW)


def refused(data, *, is_compacted=False, **config):
    with pytest.raises(BrokerError) as caught:
        validate_batch(data, log_config(**config), NOW, is_compacted=is_compacted)
    return caught.value


def patched(data, at, form, *values):
    changed = bytearray(data)
    struct.pack_into(form, changed, at, *values)
    return sealed(bytes(changed))


def header(validated):
    found = parse_header(bytes(validated.data), 0, 0)
    check_crc(found, bytes(validated.data))
    return found


def rows(data):
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decode_records(bytes(data))]


# ---- what goes in as it came


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("count", [1, 4, 5, 300])
def test_a_good_batch_is_not_changed(codec, count):
    data = sent(count, codec=codec, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1)
    batch = validate(data)
    assert batch.data == data
    assert (batch.record_count, batch.max_timestamp, batch.log_append_time_ms) == (count, NOW + count - 1, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 2**31 - 1)
    assert batch.last_sequence == (2**31 - 1 if count == 1 else count - 2)


def test_the_batch_is_a_copy_and_the_request_keeps_its_bytes():
    data = bytearray(sent())
    batch = validate(memoryview(data))
    batch.data[0] = 1
    assert data[0] == 0


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_a_max_timestamp_that_the_records_do_not_have_is_put_right(codec):
    data = sent(5, codec=codec, max_timestamp=NOW + 77)
    batch = validate(data)
    assert batch.max_timestamp == header(batch).max_timestamp == NOW + 4
    assert batch.data[layout.RECORDS_AT :] == data[layout.RECORDS_AT :]


def test_transactional_batches_are_taken():
    batch = validate(sent(2, attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0))
    assert batch.is_transactional


def test_bytes_behind_the_batch_that_are_none_are_left_off():
    data = sent(3)
    assert validate(data + sent(3)[:40]).data == data


# ---- LogAppendTime


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_log_append_time_sets_type_and_max_timestamp_and_leaves_the_records_alone(codec):
    data = sent(5, codec=codec)
    batch = validate(data, message_timestamp_type="LogAppendTime")
    found = header(batch)
    assert batch.log_append_time_ms == batch.max_timestamp == found.max_timestamp == NOW
    assert found.attributes == codec | LOG_APPEND_TIME
    assert found.base_timestamp == NOW
    assert batch.data[layout.RECORDS_AT :] == data[layout.RECORDS_AT :]


def test_log_append_time_takes_timestamps_that_are_out_of_bounds():
    validate(sent(1, timestamp=NOW + 10 * HOUR), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("type_", ["CreateTime", "LogAppendTime"])
def test_a_producer_does_not_set_log_append_time(type_):
    error = refused(sent(2, log_append_time=NOW), message_timestamp_type=type_)
    assert error.code == ErrorCode.invalid_timestamp
    assert [index for index, _ in error.errors] == [0, 1]


# ---- compression.type


@pytest.mark.parametrize("source", CODEC_IDS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_compression_type_recompresses_and_keeps_everything_else(source, target):
    data = sent(9, codec=source, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=1, base_sequence=3)
    batch = validate(data, compression_type=target)
    before, after = parse_header(data, 0, 0), header(batch)
    wanted = NONE if target == "uncompressed" else CODECS[target]
    assert after.codec == wanted
    assert rows(batch.data) == rows(data)
    same = [name for name in before._fields if name not in ("size", "crc", "attributes")]
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert after.is_transactional
    if source == wanted:
        assert batch.data == data


def test_a_batch_that_recompression_makes_too_large_is_refused():
    data = sent(50, size=1000, codec=ZSTD)
    error = refused(data, compression_type="uncompressed", max_message_bytes=len(data) + 1000)
    assert error.code == ErrorCode.message_too_large


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_offset_deltas_that_do_not_count_up_are_made_anew(codec):
    records = [V2Record(i, NOW + i, b"k", b"v", ((b"h", b"x"),)) for i in (5, 200, 3)]
    data = batch(0, records, codec=codec, last_offset=2)
    made = validate(data)
    assert header(made).codec == codec
    assert [row[0] for row in rows(made.data)] == [0, 1, 2]
    assert [row[1:] for row in rows(made.data)] == [(r.timestamp, b"k", b"v", (("h", b"x"),)) for r in records]


# ---- what is refused


def test_a_batch_larger_than_max_message_bytes_is_refused_whatever_its_records_unfold_to():
    data = sent(10, size=1000, codec=ZSTD)
    validate(data, max_message_bytes=len(data))
    assert refused(data, max_message_bytes=len(data) - 1).code == ErrorCode.message_too_large


def test_a_wrong_crc_is_a_corrupt_message():
    data = bytearray(sent(3))
    data[-1] ^= 1
    assert refused(bytes(data)).code == ErrorCode.corrupt_message


def test_bytes_outside_the_crc_may_be_anything_but_the_base_offset():
    data = bytearray(sent(3))
    struct.pack_into(">i", data, layout.LEADER_EPOCH_AT, 99)
    validate(bytes(data))
    struct.pack_into(">q", data, 0, 1)
    assert refused(bytes(data)).code == ErrorCode.invalid_record


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.invalid_record),
        (bytes(11), ErrorCode.invalid_record),
        (sent(2)[:-1], ErrorCode.invalid_record),
        (sent(2) + sent(2), ErrorCode.invalid_record),
        (sent(2)[:16] + b"\x01" + sent(2)[17:], ErrorCode.invalid_record),
        (bytes(8) + struct.pack(">i", 10) + bytes(4) + b"\x02" + bytes(80), ErrorCode.corrupt_message),
        (bytes(8) + struct.pack(">i", -1) + bytes(4) + b"\x02" + bytes(80), ErrorCode.corrupt_message),
        (sent(2, count=3), ErrorCode.invalid_record),
        (sent(2, last_offset=2), ErrorCode.invalid_record),
        (sent(2, count=0, last_offset=-1), ErrorCode.invalid_record),
        (sent(2, count=-2, last_offset=-3), ErrorCode.invalid_record),
        (sent(2, count=2**31 - 1, last_offset=2**31 - 2), ErrorCode.invalid_record),
        (sent(2, count=1, last_offset=0), ErrorCode.invalid_record),
        (sent(1, attributes=CONTROL), ErrorCode.invalid_record),
        (sent(1, producer_id=5, producer_epoch=0, base_sequence=-1), ErrorCode.invalid_record),
        (patched(sent(5), layout.ATTRIBUTES_AT, ">h", 5), ErrorCode.unsupported_compression_type),
        (patched(sent(5), layout.ATTRIBUTES_AT, ">h", LZ4), ErrorCode.invalid_record),
        (patched(sent(5, codec=LZ4), layout.ATTRIBUTES_AT, ">h", ZSTD), ErrorCode.invalid_record),
        (patched(sent(5, codec=ZSTD), layout.RECORDS_AT + 9, ">q", -1), ErrorCode.invalid_record),
    ],
)
def test_what_is_no_good_batch_is_refused_with_kafkas_code(data, code):
    assert refused(data).code == code


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("count", [3, 20])
def test_records_that_break_a_rule_are_all_listed(codec, count):
    stale = {1, count - 1}
    records = [V2Record(i, NOW + (2 * HOUR if i in stale else 0), b"k", b"v") for i in range(count)]
    error = refused(batch(0, records, codec=codec))
    assert isinstance(error, InvalidRecordErrors)
    assert error.code == ErrorCode.invalid_timestamp
    assert [index for index, _ in error.errors] == sorted(stale)


def test_timestamps_on_the_bounds_are_taken():
    bounds = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50}
    for timestamp in (NOW - 100, NOW + 50, -1):
        validate(sent(1, timestamp=timestamp), **bounds)
    for timestamp in (NOW - 101, NOW + 51):
        assert refused(sent(1, timestamp=timestamp), **bounds).code == ErrorCode.invalid_timestamp


@pytest.mark.parametrize("count", [2, 30])
def test_a_compacted_topic_takes_no_record_without_a_key(count):
    records = [V2Record(i, NOW, None if i == 1 else b"k", b"v") for i in range(count)]
    data = batch(0, records)
    validate(data)
    error = refused(data, is_compacted=True)
    assert error.code == ErrorCode.invalid_record
    assert [index for index, _ in error.errors] == [1]


@pytest.mark.parametrize("name", ["gzip", "zstd", "lz4", "snappy"])
def test_a_decompression_bomb_ends_in_an_error(name):
    record = encoded([V2Record(0, NOW, b"k", bytes(200 << 20))], 0, NOW)
    if name == "gzip":
        packed = gzip.compress(record, 1, mtime=0)
        bomb = batch(0, [V2Record(0, NOW)], payload=packed)
        bomb = patched(bomb, layout.ATTRIBUTES_AT, ">h", CODECS[name])
    else:
        bomb = batch(0, [V2Record(0, NOW, b"k", bytes(200 << 20))], codec=CODECS[name])
    error = refused(bomb, max_message_bytes=1 << 30)
    assert error.code == ErrorCode.invalid_record
    assert "unfold" in error.what


def test_every_cut_and_every_flipped_bit_is_refused():
    data = sent(2, codec=LZ4)
    for end in range(len(data)):
        refused(data[:end])
    for bit in range(16 * 8, 8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        refused(bytes(changed))
