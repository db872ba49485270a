"""Down-conversion for clients of Fetch versions 0 to 3: transactions, legacy segments, limits and damage.

tests/broker/old_versions compares the responses with those of a real Kafka; this file compares them with the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching import down_conversion
from kafkalog_broker.fetching.converted_window import ConversionRequest, OversizedFirst
from kafkalog_broker.fetching.down_conversion import convert
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.message_set_validation import validate_message_set
from kafkalog_spark.format.layout import ControlType
from tests.broker.fetching.helpers.converted_logs import (
    OLD,
    OLD_CODECS,
    RECORDS,
    append,
    data_of,
    log_of,
    read,
    records_of,
    some,
    transaction,
)
from tests.broker.old_versions.helpers.old_client import whole
from tests.broker.storage.helpers.stored_logs import NOW, new_log
from tests.log.helpers.batch_builder import CODECS, TRANSACTIONAL, ZSTD, batch, encoded
from tests.log.helpers.legacy_builder import GZIP, LZ4, NONE, SNAPPY, LegacyRecord, message, message_set, wrapper
from tests.searches import examples


@settings(max_examples=examples(120))
@given(
    sets=st.lists(st.tuples(RECORDS, st.sampled_from(OLD_CODECS)), min_size=1, max_size=5),
    magic=st.sampled_from((0, 1)),
    most=st.sampled_from((1000, 3000, 1 << 20)),
    offset=st.integers(0, 30),
)
def test_down_conversion_of_a_stored_message_set_returns_the_sent_messages(
    tmp_path_factory: pytest.TempPathFactory, sets: Any, magic: int, most: int, offset: int
) -> None:
    log = new_log(tmp_path_factory.mktemp("log"))
    sent: list[LegacyRecord] = []
    for records, codec in sets:
        numbered = [LegacyRecord(n, record.key, record.value, record.timestamp) for n, record in enumerate(records)]
        data = message_set(magic, numbered) if codec == NONE else wrapper(magic, codec, numbered)
        made = validate_message_set(memoryview(data), log.config, NOW)
        assert made is not None
        log.append(made, NOW)
        sent += numbered
    offset = min(offset, len(sent))
    for version in (0, 1, 2, 3):
        as_v1 = magic == 1 and version >= 2
        assert [(r.offset, r.key, r.value, r.timestamp) for r in records_of(log, version, offset, most)] == [
            (n, record.key, record.value, record.timestamp if as_v1 else -1)
            for n, record in enumerate(sent)
            if n >= offset
        ]
    log.discard()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [code for code in CODECS.values() if code != ZSTD])
def test_down_conversion_drops_headers_and_keeps_other_fields(tmp_path: Path, codec: int, version: int) -> None:
    log = new_log(tmp_path)
    append(log, some(30), codec=codec)
    batches = whole(data_of(log, version))
    assert {(one.magic, one.codec) for one in batches} == {(int(version >= 2), codec)}
    found = [one for b in batches for one in b.records]
    assert [(one.offset, one.key, one.value) for one in found] == [(n, r.key, r.value) for n, r in enumerate(some(30))]
    assert [one.timestamp for one in found] == [NOW + n if version >= 2 else -1 for n in range(30)]
    log.discard()


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_conversion_keeps_log_append_time(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    append(log, some(3), codec=codec)
    assert [(record.timestamp, record.timestamp_type) for record in records_of(log, 2)] == [(NOW, 1)] * 3
    log.discard()


@pytest.mark.parametrize("version", [0, 3])
def test_down_conversion_omits_markers_and_aborted_records_and_keeps_offsets(tmp_path: Path, version: int) -> None:
    log = new_log(tmp_path)
    transaction(log, ControlType.COMMIT)  # 0, 1, marker 2
    transaction(log, ControlType.ABORT, sequence=2)  # 3, 4, marker 5
    append(log, some(1))  # 6
    transaction(log, ControlType.COMMIT, sequence=4)  # 7, 8, marker 9
    assert [record.offset for record in records_of(log, version)] == [0, 1, 6, 7, 8]
    assert [record.offset for record in records_of(log, version, 2)] == [6, 7, 8]
    assert [record.offset for record in records_of(log, version, 4)] == [6, 7, 8]
    assert data_of(log, version, 9) == b""
    log.discard()


def test_down_conversion_includes_records_of_open_transactions(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    made = batch(
        0, some(2), leader_epoch=-1, attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0
    )
    log.append(validate_batch(made, log.config, NOW), NOW)
    assert [record.offset for record in records_of(log, 2)] == [0, 1]
    log.discard()


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_fetch_of_legacy_segments_is_unconverted_for_versions_that_can_read_them(tmp_path: Path, codec: int) -> None:
    def of(magic: int, records: list[LegacyRecord]) -> bytes:
        return message_set(magic, records) if codec == NONE else wrapper(magic, codec, records)

    v0, v1 = of(0, OLD[:3]), of(1, OLD[3:])
    log = log_of(tmp_path / "log", (0, v0), (3, v1))
    append(log, some(1))
    for version in (2, 3):
        assert data_of(log, version)[: len(v0 + v1)] == v0 + v1
        assert [one.offset for one in records_of(log, version)] == list(range(7))
    for version in (0, 1):
        data = data_of(log, version)
        assert data[: len(v0)] == v0
        assert {one.magic for one in whole(data)} == {0}
        found = records_of(log, version)
        assert [(one.offset, one.key, one.value) for one in found[:6]] == [(r.offset, r.key, r.value) for r in OLD]
    log.discard()


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_down_conversion_keeps_gaps_between_relative_offsets(tmp_path: Path, codec: int) -> None:
    """Compaction leaves such gaps."""
    kept = [OLD[1], OLD[4], OLD[5]]
    log = log_of(tmp_path / "log", (0, wrapper(1, codec, kept, relative_to=0)))
    assert [record.offset for record in records_of(log, 0)] == [1, 4, 5]
    assert [record.offset for record in records_of(log, 0, 3)] == [4, 5]
    log.discard()


def test_down_conversion_of_a_zstd_batch_is_unsupported_compression_type(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    append(log, some(1), codec=ZSTD)
    assert [one.offset for b in whole(data_of(log, 2)) for one in b.records] == [0]
    (one,) = read(log, 2, 1).partitions
    assert one.error_code == ErrorCode.unsupported_compression_type
    log.discard()


@pytest.mark.parametrize("malformed", [b"\x01", b""], ids=["a length of -1", "missing"])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_down_conversion_returns_the_records_before_a_malformed_one(
    tmp_path: Path, codec: int, malformed: bytes
) -> None:
    records = some(3)
    payload = encoded(records[:2], 0, NOW) + malformed
    data = batch(0, records, codec=codec, payload=payload)
    log = log_of(tmp_path / "log", (0, data))
    sent = [one for found in whole(data_of(log, 2)) for one in found.records]
    assert [record.offset for record in sent] == [0, 1]
    (one,) = read(log, 2, 2).partitions
    assert one.error_code == ErrorCode.corrupt_message
    log.discard()


def test_down_conversion_pauses_at_its_time_limit_and_resumes_at_the_next_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "MAX_CONVERSION_S", 0.0)
    log = new_log(tmp_path)
    for _ in range(10):
        append(log, some(1), codec=GZIP)
    found = convert(log, ConversionRequest(0, 10, 1, 1 << 20, OversizedFirst.OMIT))
    assert (found.next_offset, found.is_full) == (1, False)
    assert [record.offset for record in records_of(log, 2)] == list(range(10))
    log.discard()


def test_down_conversion_of_a_batch_above_the_memory_limit_is_message_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "MAX_BATCH_BYTES", 500)
    log = new_log(tmp_path)
    append(log, some(1, size=1_000))
    with pytest.raises(BrokerError) as caught:
        convert(log, ConversionRequest(0, 1, 0, 1 << 20, OversizedFirst.CUT_OFF))
    assert caught.value.code is ErrorCode.message_too_large
    log.discard()


def test_down_conversion_reads_plain_messages_and_wrappers_in_one_segment(tmp_path: Path) -> None:
    data = (
        message(1, 0, b"a", b"x", NOW)
        + wrapper(1, GZIP, OLD[1:3])
        + message(0, 3, b"b", b"y")
        + wrapper(0, LZ4, OLD[4:6])
    )
    log = log_of(tmp_path / "log", (0, data))
    append(log, some(2), codec=SNAPPY)
    for version in (0, 1, 2, 3):
        assert [record.offset for record in records_of(log, version)] == list(range(8))
        assert [record.offset for record in records_of(log, version, most=150)] == list(range(8))
    log.discard()
