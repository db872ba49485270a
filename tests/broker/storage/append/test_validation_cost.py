from __future__ import annotations

import pytest

from kafkalog_broker.storage.append import record_walk
from kafkalog_broker.storage.append.append_validation import (
    AT_ONCE,
    PACKED_AT_ONCE,
    PIECES_AT_ONCE,
    RECORDS_AT_ONCE,
    bytes_at_once,
    validate_batch,
)
from kafkalog_broker.storage.append.record_walk import TakesTooLong
from kafkalog_spark.format import layout
from tests.broker.storage.helpers.stored_logs import NOW, log_config, sent
from tests.log.helpers.batch_builder import CODECS, GZIP, LZ4, NONE, SNAPPY, V2Record, batch, encoded, sealed
from tests.log.helpers.compressed_streams import lz4_linked_blocks, xerial_blocks

LARGE = {"max_message_bytes": 64 << 20}


def sized(codec: int, size: int, count: int = 1) -> memoryview:
    """A batch as far as its size, codec and record count go."""
    data = bytearray(size)
    data[layout.ATTRIBUTES_AT + 1] = codec
    data[layout.RECORDS_AT - 4 : layout.RECORDS_AT] = count.to_bytes(4, "big", signed=True)
    return memoryview(data)


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_a_batch_of_the_usual_size_is_validated_at_once(codec):
    assert bytes_at_once(sized(codec, 64 << 10, 10_000)) == AT_ONCE[codec]


def test_a_batch_that_takes_long_to_decompress_goes_to_a_thread():
    assert bytes_at_once(sized(LZ4, 256 << 10)) == AT_ONCE[LZ4]
    assert bytes_at_once(sized(LZ4, (256 << 10) + 1)) == 0
    assert bytes_at_once(sized(GZIP, (64 << 10) + 1)) == 0


def test_a_large_uncompressed_batch_goes_to_a_thread():
    assert bytes_at_once(sized(NONE, 2 << 20)) == AT_ONCE[NONE]
    assert bytes_at_once(sized(NONE, (2 << 20) + 1)) == 0


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_a_batch_of_many_records_goes_to_a_thread(codec):
    size = RECORDS_AT_ONCE + 1
    assert bytes_at_once(sized(codec, size, RECORDS_AT_ONCE)) == AT_ONCE[codec]
    assert bytes_at_once(sized(codec, size, RECORDS_AT_ONCE + 1)) == 0
    assert bytes_at_once(sized(codec, size, -1)) == AT_ONCE[codec]


def test_few_uncompressed_bytes_are_validated_at_once_whatever_they_announce():
    assert bytes_at_once(sized(NONE, RECORDS_AT_ONCE, 2**31 - 1)) == AT_ONCE[NONE]


@pytest.mark.parametrize("data", [b"", bytes(layout.RECORDS_AT - 1), bytes(sized(7, 100))])
def test_what_is_no_batch_is_left_to_validation(data):
    assert bytes_at_once(memoryview(data)) == AT_ONCE[NONE]


def too_long(data: bytes, **config: object) -> None:
    """The event loop gives the batch back; a thread finds it good."""
    with pytest.raises(TakesTooLong):
        validate_batch(data, log_config(**LARGE, **config), NOW, at_once=bytes_at_once(memoryview(data)))
    validate_batch(data, log_config(**LARGE, **config), NOW)


@pytest.mark.parametrize("codec", sorted(set(CODECS.values()) - {NONE}))
def test_a_batch_that_decompresses_further_than_there_is_time_for_is_not_refused_but_given_back(codec):
    too_long(batch(0, [V2Record(0, NOW, value=bytes(AT_ONCE[codec]))], codec=codec))


def test_a_kilobyte_of_gzip_that_decompresses_to_a_megabyte_is_not_decompressed_in_the_event_loop():
    data = batch(0, [V2Record(0, NOW, value=bytes(1 << 20))], codec=GZIP)
    assert len(data) < 1200
    too_long(data)


@pytest.mark.parametrize(("codec", "cut"), [(LZ4, lz4_linked_blocks), (SNAPPY, xerial_blocks)])
def test_a_stream_of_many_small_blocks_is_not_decompressed_in_the_event_loop(codec, cut):
    record = encoded([V2Record(0, NOW, value=bytes(PIECES_AT_ONCE))], 0, NOW)
    data = bytearray(batch(0, [V2Record(0, NOW)], payload=cut(record, 1)))
    data[layout.ATTRIBUTES_AT + 1] = codec
    too_long(sealed(bytes(data)))


@pytest.mark.parametrize("target", ["gzip", "zstd", "lz4", "snappy"])
def test_a_batch_that_is_packed_anew_goes_to_a_thread_unless_it_is_small(target):
    too_long(batch(0, [V2Record(0, NOW, value=bytes(PACKED_AT_ONCE))]), compression_type=target)
    small = batch(0, [V2Record(0, NOW, value=bytes(PACKED_AT_ONCE - 100))])
    validate_batch(small, log_config(compression_type=target), NOW, at_once=AT_ONCE[NONE])


def test_a_batch_that_is_numbered_anew_and_packed_again_goes_to_a_thread():
    records = [V2Record(0, NOW, value=bytes(PACKED_AT_ONCE)), V2Record(0, NOW)]
    too_long(batch(0, records, codec=LZ4, last_offset=1))


@pytest.mark.parametrize("data", [sent(1001, size=0), batch(0, [V2Record(0, NOW, headers=((b"", b""),) * 1001)])])
def test_the_event_loop_does_not_wait_for_the_compiled_walk_and_walks_no_thousands_plainly(data, monkeypatch):
    kernel = record_walk.load_kernel()
    monkeypatch.setattr(record_walk, "_kernel", None)
    monkeypatch.setattr(record_walk, "_load_soon", lambda: None)
    with pytest.raises(TakesTooLong):
        validate_batch(data, log_config(), NOW, at_once=AT_ONCE[NONE])
    monkeypatch.setattr(record_walk, "_kernel", kernel)
    assert validate_batch(data, log_config(), NOW, at_once=AT_ONCE[NONE]).data == data
