"""Malformed batches and messages, with a valid or a wrong CRC: each raises an error with its location."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.layout import CRC_AT, Codec
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from tests.log.helpers import legacy_builder
from tests.log.helpers.batch_builder import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    V2Record,
    batch,
    compressed,
    encoded,
    encoded_headers,
    record,
    sealed,
    varint,
)
from tests.log.helpers.damaged_log import (
    AFTER,
    BEFORE,
    HONEST,
    LARGE,
    TIME,
    check_place,
    open_log,
    patched,
    read_all,
    records,
    write_segments,
)
from tests.log.helpers.legacy_builder import LegacyRecord, message, message_set, wrapper
from tests.log.helpers.rows import plain_rows


def lies(at: int, kind: str, value: int) -> bytes:
    """HONEST with another header field, and the CRC that goes with it."""
    return sealed(patched(HONEST, at, struct.pack(">" + kind, value)))


def with_payload(payload: bytes, codec: int = 0, count: int = 5) -> bytes:
    return batch(5, records(5), payload=payload, codec=codec, count=count)


def five(odd: bytes, at: int = 2) -> bytes:
    """Records 5 to 9, of which the one at `at` is `odd`."""
    good = [encoded([r], 5, TIME + 5) for r in records(5)]
    return with_payload(b"".join([*good[:at], odd, *good[at + 1 :]]))


def odd_record(body: bytes, length: int | None = None) -> bytes:
    return five(varint(len(body) if length is None else length) + body)


HEAD = b"\x00" + varint(2) + varint(2)  # attributes, timestamp delta, offset delta of the third record
NO_HEADERS = varint(0)
NULL_AND_NONE = varint(-1) + NO_HEADERS
OVERLONG_ONE = b"\x82\x80\x80\x80\x80\x00"  # 1, in a byte more than Java reads

LYING: dict[str, tuple[bytes, type[KafkalogError], str]] = {
    "CRC of a small batch": (patched(HONEST, CRC_AT, b"\x00\x00\x00\x00"), CorruptBatch, "CRC-32C does not match"),
    "CRC of a large batch": (patched(LARGE, 900, b"\xff"), CorruptBatch, "CRC-32C does not match"),
    "magic 3": (patched(HONEST, 16, b"\x03"), UnsupportedFormat, "magic 3"),
    "magic -1": (patched(HONEST, 16, b"\xff"), UnsupportedFormat, "magic -1"),
    **{f"codec {codec}": (lies(21, "h", codec), UnsupportedFormat, f"codec {codec}") for codec in range(len(Codec), 8)},
    "length 0": (patched(HONEST, 8, struct.pack(">i", 0)), CorruptBatch, "batch length 0"),
    "length -1": (patched(HONEST, 8, struct.pack(">i", -1)), CorruptBatch, "batch length -1"),
    "length -2^31": (patched(HONEST, 8, struct.pack(">i", -(2**31))), CorruptBatch, "batch length -2147483648"),
    "length of 2 GB": (patched(HONEST, 8, struct.pack(">i", 2**31 - 1)), CorruptBatch, "the file ends after"),
    "length one below a header": (patched(HONEST, 8, struct.pack(">i", 48)), CorruptBatch, "at least 49"),
    "length one less": (patched(HONEST, 8, struct.pack(">i", len(HONEST) - 13)), CorruptBatch, "CRC-32C"),
    "length one more": (patched(HONEST, 8, struct.pack(">i", len(HONEST) - 11)), CorruptBatch, "CRC-32C"),
    "one record more": (lies(57, "i", 6), CorruptBatch, "runs past the end of the batch"),
    "one record less": (lies(57, "i", 4), CorruptBatch, "bytes are left after the last record"),
    "no record": (lies(57, "i", 0), CorruptBatch, "bytes are left after the last record"),
    "-1 records": (lies(57, "i", -1), CorruptBatch, "record count of -1"),
    "2^31-1 records": (lies(57, "i", 2**31 - 1), CorruptBatch, "runs past the end of the batch"),
    "last offset below the base offset": (lies(23, "i", -1), CorruptBatch, "offsets 5 to 4"),
    "last offset in the next batch": (lies(23, "i", 5), CorruptBatch, "do not follow 10"),
    "last offset too low": (lies(23, "i", 3), CorruptBatch, "offset does not increase, or is outside"),
    "base offset too low": (patched(HONEST, 0, struct.pack(">q", 4)), CorruptBatch, "offsets 4 to 8 do not follow 4"),
    "base offset too high": (
        patched(HONEST, 0, struct.pack(">q", 6)),
        CorruptBatch,
        "offsets 6 to 10 do not fit between 4 and the next batch, which begins at offset 10",
    ),
    "base offset far too high": (patched(HONEST, 0, struct.pack(">q", 2**50)), CorruptBatch, "do not fit between 4 an"),
    "base offset negative": (patched(HONEST, 0, struct.pack(">q", -(2**63) + 5)), CorruptBatch, "do not follow 4"),
    "base offset 2^63-1": (patched(HONEST, 0, struct.pack(">q", 2**63 - 1)), CorruptBatch, "do not follow 4"),
    "record length too long": (odd_record(HEAD + varint(-1) * 2 + NO_HEADERS, 200), CorruptBatch, "runs past the end"),
    "record length one more": (odd_record(HEAD + varint(-1) * 2 + NO_HEADERS, 7), CorruptBatch, "does not match its f"),
    "record length one less": (
        odd_record(HEAD + varint(-1) * 2 + NO_HEADERS, 5),
        CorruptBatch,
        "past the end of its re",
    ),
    "record length 0": (five(varint(0)), CorruptBatch, "past the end of its record"),
    "record length -1": (five(varint(-1)), CorruptBatch, "runs past the end of the batch"),
    "record length of 11 bytes": (five(b"\xff" * 11), CorruptBatch, "runs past the end of the batch"),
    "timestamp delta of 11 bytes": (odd_record(b"\x00" + b"\xff" * 11), CorruptBatch, "varint or field runs past"),
    "offset delta of 11 bytes": (odd_record(b"\x00\x00" + b"\x80" * 11), CorruptBatch, "varint or field runs past"),
    "offset delta not rising": (five(record(0, 1, None, b"v", NO_HEADERS)), CorruptBatch, "offset does not increase"),
    "offset delta negative": (five(record(0, -1, None, b"v", NO_HEADERS), 0), CorruptBatch, "offset does not increase"),
    "offset delta past the last": (five(record(0, 5, None, b"v", NO_HEADERS), 4), CorruptBatch, "outside the batch"),
    "offset delta of six bytes": (five(record(0, 2**40, None, b"v", NO_HEADERS), 4), CorruptBatch, "field runs past"),
    "offset delta of 2^31 - 1": (five(record(0, 2**31 - 1, None, b"v", NO_HEADERS), 4), CorruptBatch, "outside the ba"),
    "key length of six bytes": (
        odd_record(HEAD + OVERLONG_ONE + b"k" + NULL_AND_NONE),
        CorruptBatch,
        "field runs past",
    ),
    "value length of six bytes": (
        odd_record(HEAD + varint(-1) + OVERLONG_ONE + b"v" + NO_HEADERS),
        CorruptBatch,
        "field runs past",
    ),
    "header count of six bytes": (
        odd_record(HEAD + varint(-1) * 2 + OVERLONG_ONE + varint(0) + varint(-1)),
        CorruptBatch,
        "field runs past",
    ),
    "record length of six bytes": (
        five(b"\x8e\x80\x80\x80\x80\x00" + HEAD + varint(-1) * 2 + NO_HEADERS),
        CorruptBatch,
        "runs past the end of the batch",
    ),
    "key length past the record": (odd_record(HEAD + varint(50) + b"k"), CorruptBatch, "varint or field runs past"),
    "key length 2^62": (odd_record(HEAD + varint(2**62) + b"k"), CorruptBatch, "varint or field runs past"),
    "key length -2": (odd_record(HEAD + varint(-2) + b"k" * 9), CorruptBatch, "varint or field runs past"),
    "value length past the record": (
        odd_record(HEAD + varint(-1) + varint(50) + b"v"),
        CorruptBatch,
        "field runs past",
    ),
    "value length -2": (odd_record(HEAD + varint(-1) + varint(-2) + b"v" * 9), CorruptBatch, "field runs past"),
    "value length -2^63": (odd_record(HEAD + varint(-1) + varint(-(2**63))), CorruptBatch, "field runs past"),
    "a header too many": (
        five(record(2, 2, None, None, varint(2) + encoded_headers([(b"a", b"b")])[1:])),
        CorruptBatch,
        "varint or field runs past",
    ),
    "a header too few": (
        five(record(2, 2, None, None, varint(1) + encoded_headers([(b"a", b"b"), (b"c", None)])[1:])),
        CorruptBatch,
        "does not match its fields",
    ),
    "no headers, but bytes": (five(record(2, 2, None, None, varint(0) + b"abc")), CorruptBatch, "does not match its"),
    "header count -1": (five(record(2, 2, None, None, varint(-1))), CorruptBatch, "varint or field runs past"),
    "header count 2^31 - 1": (
        five(record(2, 2, None, None, varint(2**31 - 1) + b"abcd")),
        CorruptBatch,
        "field runs past",
    ),
    "header count 2^31, which is 0 in 32 bits, and bytes": (
        five(record(2, 2, None, None, varint(2**31) + b"abcd")),
        CorruptBatch,
        "does not match its fields",
    ),
    "header without a key": (
        five(record(2, 2, None, None, varint(1) + varint(-1) + varint(-1))),
        CorruptBatch,
        "a header has no key",
    ),
    "timestamp too late for Spark": (
        batch(5, [V2Record(5, 2**63 // 1000 + 1), *records(6, 4)]),
        UnsupportedFormat,
        "does not fit int64 microseconds",
    ),
    "timestamp too early for Spark": (
        batch(5, [V2Record(5, -(2**63) // 1000 - 1), *records(6, 4)]),
        UnsupportedFormat,
        "does not fit int64 microseconds",
    ),
}
COMPRESSING = [codec for codec in Codec if codec != Codec.NONE]
for _codec in COMPRESSING:
    _name = _codec.name.lower()
    _whole = compressed(_codec, encoded(records(5), 5, TIME + 5))
    _head = batch(5, records(5), codec=_codec)[:HEADER_SIZE]
    LYING[f"{_name}: garbage"] = (sealed(_head + b"\x55" * 40), CorruptBatch, "")
    LYING[f"{_name}: nothing"] = (sealed(_head), CorruptBatch, "")
    LYING[f"{_name}: half"] = (sealed(_head + _whole[: len(_whole) // 2]), CorruptBatch, "")
    LYING[f"{_name}: one record more"] = (
        batch(5, records(5), codec=_codec, count=6), CorruptBatch, "runs past the end of the batch",
    )  # fmt: skip
    LYING[f"{_name}: one record less"] = (batch(5, records(5), codec=_codec, count=4), CorruptBatch, "bytes are left")
    LYING[f"{_name}: 2^31-1 records"] = (
        batch(5, records(5), codec=_codec, count=2**31 - 1), CorruptBatch, "runs past the end of the batch",
    )  # fmt: skip

# Where the fault shows only when the next batch is met, the error is that one's.
SHOWN_BY_THE_NEXT = {"last offset in the next batch"}


@pytest.mark.parametrize("name", LYING)
def test_bad_batch_raises_error_with_position(name: str, tmp_path: Path) -> None:
    bad, expected, text = LYING[name]
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    with pytest.raises(expected) as raised:
        read_all(directory)
    assert type(raised.value) is expected
    assert text in str(raised.value)
    if name in SHOWN_BY_THE_NEXT:
        check_place(raised.value, directory, len(BEFORE) + len(bad), 10)
    else:
        check_place(raised.value, directory, len(BEFORE), struct.unpack(">q", bad[:8])[0])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_offsets_in_the_header_are_read_without_opening_the_batch(codec: Codec, tmp_path: Path) -> None:
    bad, _, _ = LYING[f"{codec.name.lower()}: garbage"]
    directory = write_segments(tmp_path, {0: BEFORE + bad + AFTER})
    assert [row["offset"] for row in read_all(directory, columns=("offset",))] == list(range(15))
    for columns in (("timestamp",), ("value",)):
        with pytest.raises(CorruptBatch):
            read_all(directory, columns=columns)


def test_any_negative_length_is_null_as_in_kafka(tmp_path: Path) -> None:
    """DefaultRecord.readFrom: Utils.readBytes gives null for whatever is below 0."""
    headers = varint(1) + varint(1) + b"h" + varint(-(2**31))
    odd = record(2, 2, None, None, NO_HEADERS)[1:-3] + varint(-2) + varint(-3) + headers
    directory = write_segments(tmp_path, {0: BEFORE + five(varint(len(odd)) + odd) + AFTER})
    row = read_all(directory)[7]
    assert (row["offset"], row["key"], row["value"]) == (7, None, None)
    assert [tuple(header) for header in row["headers"]] == [("h", None)]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_implausible_record_count_is_checked_by_decoding(codec: Codec, tmp_path: Path) -> None:
    """76 bytes are no 9,000,000 rows, whatever columns are asked for."""
    directory = write_segments(
        tmp_path, {0: batch(0, [], codec=codec, payload=b"x", count=9_000_000, last_offset=8_999_999)}
    )
    for columns in (("offset",), ("key",)):
        with pytest.raises(CorruptBatch):
            read_all(directory, columns=columns)


@pytest.mark.parametrize("name", [name for name in LYING if LYING[name][0][8:12] == HONEST[8:12]])
def test_rows_before_a_bad_batch_are_returned(name: str, tmp_path: Path) -> None:
    bad, _, _ = LYING[name]
    directory = write_segments(tmp_path, {0: BEFORE, 5: bad, 10: AFTER})
    log = open_log(directory)
    assert [row["offset"] for row in plain_rows(scan_partition(log, 0, 5))] == [0, 1, 2, 3, 4]
    assert [row["offset"] for row in plain_rows(scan_partition(log, 10, 15))] == [10, 11, 12, 13, 14]
    with pytest.raises(KafkalogError):
        list(scan_partition(log, 0, 15, ScanRequest(columns=("value", "headers", "timestamp"))))


def test_damaged_header_is_an_error_despite_a_filter(tmp_path: Path) -> None:
    """maxTimestamp, attributes, producer id and lastOffsetDelta decide what is skipped: the CRC is looked at first."""
    large = batch(5, records(5, size=400))
    damages = {
        "max timestamp": patched(large, 35, bytes(8)),
        "control": patched(large, 22, bytes([CONTROL])),
        "LogAppendTime": patched(patched(large, 22, bytes([LOG_APPEND_TIME])), 35, struct.pack(">q", 2**50)),
        "last offset delta": patched(large, 23, struct.pack(">i", 0)),
        "count": patched(large, 57, bytes(4)),
    }
    for what, bad in damages.items():
        directory = write_segments(tmp_path / what, {0: BEFORE + bad + AFTER})
        log = open_log(directory)
        for start, request in (
            (0, ScanRequest(timestamp_from_ms=TIME + 5)),
            (0, ScanRequest(timestamp_until_ms=TIME + 8)),
            (7, ScanRequest()),
        ):
            with pytest.raises(CorruptBatch, match="CRC-32C") as raised:
                list(scan_partition(log, start, 15, request))
            check_place(raised.value, directory, len(BEFORE), 5)


def legacy(first: int, count: int = 5) -> list[LegacyRecord]:
    return [LegacyRecord(at, b"key", b"value", TIME + at) for at in range(first, first + count)]


def raw_wrapper(inner: bytes, codec: int = legacy_builder.GZIP, offset: int = 9, magic: int = 1) -> bytes:
    return message(magic, offset, None, legacy_builder.compressed(codec, inner), TIME + 9, codec)


RELATIVE = legacy(0)
LEGACY_LIES: dict[str, tuple[bytes, str, int]] = {
    "CRC of a message": (message(1, 5, b"k", b"v", TIME)[:-1] + b"!", "CRC-32 does not match", 5),
    "CRC of a wrapper": (wrapper(1, legacy_builder.GZIP, legacy(5))[:-1] + b"!", "CRC-32 does not match", 9),
    "compressed set inside a compressed set": (
        raw_wrapper(wrapper(1, legacy_builder.GZIP, RELATIVE)), "a compressed message lies inside", 9),
    "inner CRC": (raw_wrapper(message_set(1, RELATIVE)[:-1] + b"!"), "CRC-32 of a message inside", 9),
    "inner magic": (raw_wrapper(message_set(0, RELATIVE)), "another magic", 9),
    "inner magic 2": (raw_wrapper(batch(0, records(0))), "another magic", 9),
    "inner message cut": (raw_wrapper(message_set(1, RELATIVE)[:-3]), "runs past the end", 9),
    "inner length 0": (raw_wrapper(patched(message_set(1, RELATIVE), 8, bytes(4))), "runs past the end", 9),
    "inner length 2 GB": (
        raw_wrapper(patched(message_set(1, RELATIVE), 8, b"\x7f\xff\xff\xff")), "runs past the end", 9),
    "inner offsets fall": (
        raw_wrapper(message_set(1, [RELATIVE[1], RELATIVE[0], *RELATIVE[2:]])), "offset does not increase", 9),
    "inner offset -2^63": (
        raw_wrapper(message(1, -(2**63), b"k", b"v", TIME)), "of a compressed message set do not follow", 9),
    "inner offset 2^63-1 (v0)": (
        raw_wrapper(message(0, 2**63 - 1, b"k", b"v"), magic=0), "offset does not increase", 9),
    "inner offsets of the batch before": (
        wrapper(1, legacy_builder.GZIP, legacy(4, 6)), "offsets 4 to 9 of a compressed message set do not follow 4", 9),
    "absolute inner offset above the wrapper's (v0)": (
        raw_wrapper(message_set(0, legacy(5, 6)), magic=0), "offset does not increase, or is outside", 9),
    "no message": (raw_wrapper(b""), "holds no message", 9),
    "no value": (message(1, 9, None, None, TIME, legacy_builder.GZIP), "a wrapper with key size -1", 9),
    "broken stream": (message(1, 9, None, b"\x1f\x8b" + b"x" * 40, TIME, legacy_builder.GZIP), "cannot be decompr", 9),
}  # fmt: skip


def with_sizes(magic: int, key_size: int, value_size: int) -> bytes:
    """A message whose sizes are not those of its key and value; the CRC is right."""
    body = struct.pack(">bbq", 1, 0, TIME)[: 10 if magic else 2] if magic else struct.pack(">bb", 0, 0)
    body += struct.pack(">i", key_size) + b"key" + struct.pack(">i", value_size) + b"value"
    return struct.pack(">qiI", 5, len(body) + 4, zlib.crc32(body)) + body


for _magic in (0, 1):
    LEGACY_LIES[f"key size past the message (v{_magic})"] = (with_sizes(_magic, 100, 5), "field runs past", 5)
    LEGACY_LIES[f"key size -2 (v{_magic})"] = (with_sizes(_magic, -2, 5), "field runs past", 5)
    LEGACY_LIES[f"value size past the message (v{_magic})"] = (with_sizes(_magic, 3, 6), "field runs past", 5)
    LEGACY_LIES[f"value size too small (v{_magic})"] = (with_sizes(_magic, 3, 4), "does not match its fields", 5)
    LEGACY_LIES[f"value size -1 (v{_magic})"] = (with_sizes(_magic, 3, -1), "does not match its fields", 5)


@pytest.mark.parametrize("name", LEGACY_LIES)
def test_bad_message_raises_error_with_position(name: str, tmp_path: Path) -> None:
    bad, text, offset = LEGACY_LIES[name]
    before, after = message_set(1, legacy(0)), message_set(1, legacy(10))
    directory = write_segments(tmp_path, {0: before + bad + after})
    with pytest.raises(CorruptBatch) as raised:
        read_all(directory)
    assert text in str(raised.value)
    check_place(raised.value, directory, len(before), offset)


NANOSECONDS = 1_700_000_000_000_000_000


def one_in_nanoseconds(form: str) -> bytes:
    """Records 5 to 9, of which the one at 7 has a timestamp that Spark's microseconds cannot hold."""
    if form == "v1 gzip":
        old = [LegacyRecord(n, b"k", b"v", NANOSECONDS if n == 7 else TIME + n) for n in range(5, 10)]
        return wrapper(1, legacy_builder.GZIP, old)
    made = [replace(r, timestamp=NANOSECONDS) if r.offset == 7 else r for r in records(5)]
    return batch(5, made, codec=Codec.GZIP if form == "v2 gzip" else 0)


@pytest.mark.parametrize("form", ["v2", "v2 gzip", "v1 gzip"])
def test_timestamp_beyond_microseconds_keeps_the_records_before_it(form: str, tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + one_in_nanoseconds(form) + AFTER})
    log = open_log(directory)
    told = rf"\(offset 7\): the record's timestamp is {NANOSECONDS} ms, which does not fit int64 microseconds; .*leave"
    with pytest.raises(UnsupportedFormat, match=told):
        list(scan_partition(log, 0, 15))
    statistics = ScanStatistics()
    request = ScanRequest(drop_malformed=True)
    rows = plain_rows(scan_partition(log, 0, 15, request, statistics=statistics))
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, *range(10, 15)]
    assert [error.offset for error in statistics.dropped] == [7]
    assert len(plain_rows(scan_partition(log, 0, 15, ScanRequest(columns=("offset", "value"))))) == 15
