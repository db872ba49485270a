from __future__ import annotations

import contextlib
import gzip
import struct
import sys
import threading
import weakref
from typing import Any

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append import decompression
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.kernel_loading import load_kernel
from kafkalog_broker.storage.append.topic_rules import MAX_RECORD_ERRORS, InvalidRecords
from kafkalog_broker.storage.append.validation_budget import MAX_PIECES, MAX_RECORDS
from kafkalog_spark.errors import DecompressesTooFar
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import check_crc, parse_header
from kafkalog_spark.format.layout import MAX_DECOMPRESSED
from kafkalog_spark.log.codecs.scratch import Scratch
from tests.broker.storage.helpers.stored_logs import NOW, log_config, sent
from tests.log.helpers.batch_builder import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    V2Record,
    batch,
    encoded,
    sealed,
    varint,
)
from tests.log.helpers.compressed_streams import lz4_linked_blocks, xerial_blocks
from tests.log.helpers.plain_decoder import decode_records

CODEC_IDS = sorted(CODECS.values())
HOUR = 3_600_000


def validate(data, **config):
    return validate_batch(data, log_config(**config), NOW)


def refused(data, **config):
    with pytest.raises(BrokerError) as caught:
        validate_batch(data, log_config(**config), NOW)
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


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("count", [1, 4, 5, 300])
def test_validation_leaves_a_valid_batch_unchanged(codec, count):
    data = sent(count, codec=codec, producer_id=7, producer_epoch=1, base_sequence=2**31 - 1)
    batch = validate(data)
    assert batch.data == data
    assert batch.header == header(batch)
    assert (batch.header.record_count, batch.header.max_timestamp) == (count, NOW + count - 1)
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (7, 1, 2**31 - 1)
    assert batch.header.last_sequence == (2**31 - 1 if count == 1 else count - 2)


def test_validated_batch_is_a_copy_of_the_request_bytes():
    data = bytearray(sent())
    batch = validate(memoryview(data))
    batch.data[0] = 1
    assert data[0] == 0


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_validation_corrects_a_wrong_max_timestamp(codec):
    data = sent(5, codec=codec, max_timestamp=NOW + 77)
    batch = validate(data)
    assert batch.header.max_timestamp == header(batch).max_timestamp == NOW + 4
    assert batch.data[layout.RECORDS_AT :] == data[layout.RECORDS_AT :]


def test_transactional_batch_is_accepted():
    batch = validate(sent(2, attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0))
    assert batch.header.is_transactional


def test_incomplete_bytes_after_the_batch_are_dropped():
    data = sent(3)
    assert validate(data + sent(3)[:40]).data == data


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_log_append_time_sets_type_and_max_timestamp_and_keeps_the_records(codec):
    data = sent(5, codec=codec)
    batch = validate(data, message_timestamp_type="LogAppendTime")
    found = header(batch)
    assert batch.header.max_timestamp == found.max_timestamp == NOW
    assert found.attributes == codec | LOG_APPEND_TIME
    assert found.base_timestamp == NOW
    assert batch.data[layout.RECORDS_AT :] == data[layout.RECORDS_AT :]


def test_log_append_time_accepts_timestamps_out_of_bounds():
    validate(sent(1, timestamp=NOW + 10 * HOUR), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("type_", ["CreateTime", "LogAppendTime"])
def test_batch_with_log_append_time_from_a_producer_is_invalid_timestamp(type_):
    error = refused(sent(2, log_append_time=NOW), message_timestamp_type=type_)
    assert error.code == ErrorCode.invalid_timestamp
    assert [record.batch_index for record in error.records] == [0, 1]


@pytest.mark.parametrize("source", CODEC_IDS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_other_compression_type_recompresses_and_keeps_all_other_fields(source, target):
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


def test_batch_above_max_message_bytes_after_recompression_is_refused():
    data = sent(50, size=1000, codec=ZSTD)
    error = refused(data, compression_type="uncompressed", max_message_bytes=len(data) + 1000)
    assert error.code == ErrorCode.message_too_large


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_offset_deltas_that_are_not_consecutive_are_rewritten(codec):
    records = [V2Record(i, NOW + i, b"k", b"v", ((b"h", b"x"),)) for i in (5, 200, 3)]
    data = batch(0, records, codec=codec, last_offset=2)
    made = validate(data)
    assert header(made).codec == codec
    assert [row[0] for row in rows(made.data)] == [0, 1, 2]
    assert [row[1:] for row in rows(made.data)] == [(r.timestamp, b"k", b"v", (("h", b"x"),)) for r in records]


def test_compressed_batch_above_max_message_bytes_is_refused():
    data = sent(10, size=1000, codec=ZSTD)
    validate(data, max_message_bytes=len(data))
    assert refused(data, max_message_bytes=len(data) - 1).code == ErrorCode.message_too_large


def test_batch_with_a_wrong_crc_is_corrupt_message():
    data = bytearray(sent(3))
    data[-1] ^= 1
    assert refused(bytes(data)).code == ErrorCode.corrupt_message


def test_header_before_the_crc_is_ignored_except_for_the_base_offset():
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
def test_invalid_batch_is_refused_with_the_error_code_of_kafka(data, code):
    assert refused(data).code == code


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("count", [3, 20])
def test_invalid_records_are_all_listed_in_the_error(codec, count):
    stale = {1, count - 1}
    records = [V2Record(i, NOW + (2 * HOUR if i in stale else 0), b"k", b"v") for i in range(count)]
    error = refused(batch(0, records, codec=codec))
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.invalid_timestamp
    assert [record.batch_index for record in error.records] == sorted(stale)


def test_timestamp_at_the_bound_is_accepted_and_beyond_it_refused():
    bounds = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50}
    for timestamp in (NOW - 100, NOW + 50, -1):
        validate(sent(1, timestamp=timestamp), **bounds)
    for timestamp in (NOW - 101, NOW + 51):
        assert refused(sent(1, timestamp=timestamp), **bounds).code == ErrorCode.invalid_timestamp


@pytest.mark.parametrize("count", [2, 30])
def test_record_without_a_key_is_refused_by_a_compacted_topic(count):
    records = [V2Record(i, NOW, None if i == 1 else b"k", b"v") for i in range(count)]
    data = batch(0, records)
    validate(data)
    error = refused(data, cleanup_policy=("compact",))
    assert error.code == ErrorCode.invalid_record
    assert [record.batch_index for record in error.records] == [1]


@pytest.mark.parametrize("name", ["gzip", "zstd", "lz4", "snappy"])
def test_decompression_bomb_is_invalid_record(name):
    value = bytes(MAX_DECOMPRESSED + (1 << 20))
    record = encoded([V2Record(0, NOW, b"k", value)], 0, NOW)
    if name == "gzip":
        packed = gzip.compress(record, 1, mtime=0)
        bomb = batch(0, [V2Record(0, NOW)], payload=packed)
        bomb = patched(bomb, layout.ATTRIBUTES_AT, ">h", CODECS[name])
    else:
        bomb = batch(0, [V2Record(0, NOW, b"k", value)], codec=CODECS[name])
    error = refused(bomb, max_message_bytes=1 << 30)
    assert error.code == ErrorCode.invalid_record
    assert "decompress" in error.what


@pytest.mark.parametrize("codec", sorted(set(CODECS.values()) - {NONE}))
def test_error_of_a_decompression_bomb_does_not_keep_its_buffer(codec, monkeypatch):
    """Errors end up in reference cycles, which live until the garbage collector runs."""
    buffers = []

    class WatchedScratch(Scratch):
        def _hold(self, data):
            super()._hold(data)
            buffers.append(weakref.ref(data))

    monkeypatch.setattr(decompression, "Scratch", WatchedScratch)
    monkeypatch.setattr(decompression, "_per_thread", threading.local())
    records = memoryview(batch(0, [V2Record(0, NOW, b"k", bytes(9 << 20))], codec=codec))[layout.RECORDS_AT :]
    with pytest.raises(DecompressesTooFar) as raised:
        decompression.decompress_records(codec, records, 8 << 20)
    assert raised.value.__traceback__ is not None
    assert buffers
    assert all(buffer() is None for buffer in buffers)


def test_batch_with_any_truncation_or_flipped_bit_is_refused():
    data = sent(2, codec=LZ4)
    for end in range(len(data)):
        refused(data[:end])
    for bit in range(16 * 8, 8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        refused(bytes(changed))


def tiny(count: int, *, key: bytes | None = None, codec: int = NONE, **fields) -> bytes:
    """Return a batch of `count` equal records of 7 bytes, all with offset delta 0."""
    record = encoded([V2Record(0, NOW, key, None)], 0, NOW)
    return batch(
        0, [V2Record(0, NOW)], payload=record * count, count=count, last_offset=count - 1, codec=codec, **fields
    )


@pytest.fixture
def python_steps():
    """A function that returns how many lines of Python a call runs; work per record would show in the number."""

    def counted(function, *arguments, **named):
        steps = 0

        def trace(frame, event, argument):
            nonlocal steps
            steps += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with contextlib.suppress(BrokerError):
                function(*arguments, **named)
        finally:
            sys.settrace(before)
        return steps

    load_kernel()
    return counted


BOMBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "wrong deltas": ({}, {}),
    "LogAppendTime": ({"log_append_time": NOW}, {}),
    "null keys": ({}, {"config": {"cleanup_policy": ("compact",)}}),
    "old timestamps": ({}, {"config": {"message_timestamp_before_max_ms": -1}}),
}


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("name", BOMBS)
def test_validation_runs_no_python_code_per_record(name, codec, python_steps):
    fields, how = BOMBS[name]
    config = log_config(max_message_bytes=64 << 20, **how.get("config", {}))
    python_steps(validate_batch, tiny(10, codec=codec, **fields), config, NOW)  # what loads once
    data = tiny(200_000, codec=codec, **fields)
    steps = python_steps(validate_batch, data, config, NOW)
    assert steps < 2000


@pytest.mark.parametrize("name", sorted(set(BOMBS) - {"wrong deltas"}))
@pytest.mark.parametrize("count", [MAX_RECORD_ERRORS + 1, 5000])
def test_error_of_many_invalid_records_lists_the_first_hundred_and_counts_all(name, count):
    fields, how = BOMBS[name]
    error = refused(tiny(count, **fields), **how.get("config", {}))
    assert isinstance(error, InvalidRecords)
    assert [record.batch_index for record in error.records] == list(range(MAX_RECORD_ERRORS))
    assert error.total == count
    assert (
        f"{count} of the batch's records are refused ({count - MAX_RECORD_ERRORS} more than are listed)" in error.what
    )
    assert len(error.what) < 1000


def test_invalid_timestamp_after_the_hundredth_error_determines_the_error_code():
    """processRecordErrors: INVALID_TIMESTAMP when any record has one, INVALID_RECORD otherwise."""
    rows = [V2Record(i, NOW, None, b"v") for i in range(150)]
    assert refused(batch(0, rows), cleanup_policy=("compact",)).code == ErrorCode.invalid_record
    rows.append(V2Record(150, NOW + 2 * HOUR, b"k", b"v"))
    assert refused(batch(0, rows), cleanup_policy=("compact",)).code == ErrorCode.invalid_timestamp


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_offset_deltas_of_many_records_are_rewritten(codec):
    count = 10_000  # the last deltas are of three bytes
    made = validate(tiny(count, key=b"k", codec=codec), max_message_bytes=64 << 20)
    assert header(made).record_count == count
    assert [row[0] for row in rows(made.data)] == list(range(count))
    assert {row[1:] for row in rows(made.data)} == {(NOW, b"k", None, ())}


def test_batch_with_more_than_a_million_records_is_refused():
    """librdkafka's batch.num.messages is a million at most."""
    assert validate(tiny(MAX_RECORDS, codec=ZSTD)).header.record_count == MAX_RECORDS
    error = refused(tiny(MAX_RECORDS + 1, codec=ZSTD))
    assert error.code == ErrorCode.invalid_record
    assert "at most 1000000 are allowed" in error.what


@pytest.mark.parametrize("codec", sorted(set(CODECS.values()) - {NONE}))
@pytest.mark.parametrize("is_good", [True, False])
def test_decompression_buffer_of_a_large_batch_is_freed(codec, is_good):
    records = [V2Record(0, NOW, b"k", bytes(20 << 20))]
    data = batch(0, records, codec=codec, count=1 if is_good else 2, last_offset=0 if is_good else 1)
    with contextlib.suppress(BrokerError):
        validate(data, max_message_bytes=64 << 20)
    scratch = decompression._per_thread.scratch
    assert scratch is None or scratch.data.size <= 4 << 20
    validate(sent(3, codec=codec))
    assert decompression._per_thread.scratch.data.size <= 4 << 20


@pytest.mark.parametrize(("codec", "cut"), [(LZ4, lz4_linked_blocks), (SNAPPY, xerial_blocks)])
def test_compressed_stream_with_too_many_blocks_is_refused(codec, cut):
    payload = encoded([V2Record(0, NOW, b"k", bytes(MAX_PIECES))], 0, NOW)
    for size, is_good in ((2, True), (1, False)):
        data = patched(batch(0, [V2Record(0, NOW)], payload=cut(payload, size)), layout.ATTRIBUTES_AT, ">h", codec)
        if is_good:
            validate(data)
        else:
            assert "more than 10000 pieces" in refused(data).what


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("field", ["length", "offset delta", "key", "value", "headers", "header key", "header value"])
def test_varint_longer_than_five_bytes_is_refused_as_by_kafka(field, count):
    def number(name: str, value: int) -> bytes:
        plain = varint(value)
        return plain[:-1] + bytes((plain[-1] | 0x80,)) + b"\x80" * (5 - len(plain)) + b"\0" if name == field else plain

    body = b"\0\0" + number("offset delta", 0) + number("key", 1) + b"k" + number("value", 1) + b"v"
    body += number("headers", 1) + number("header key", 1) + b"h" + number("header value", 1) + b"x"
    odd = number("length", len(body)) + body
    good = encoded([V2Record(i, NOW, b"k", b"v") for i in range(1, count)], 0, NOW)
    fields = {"count": count, "last_offset": count - 1}
    assert refused(batch(0, [V2Record(0, NOW)], payload=odd + good, **fields)).code == ErrorCode.invalid_record
    allowed = (odd + good).replace(b"\x80\0", b"\0", 1)  # five bytes
    if field != "length":
        allowed = bytes((allowed[0] - 2,)) + allowed[1:]
    assert validate(batch(0, [V2Record(0, NOW)], payload=allowed, **fields)).header.record_count == count
