from __future__ import annotations

import pytest

from broker.storage.append_validation import validate_batch
from broker.storage.validation_cost import AT_ONCE, PACKED_AT_ONCE, bytes_at_once
from kafkalog_spark.errors import UnfoldsTooFar
from kafkalog_spark.log import layout
from kafkalog_spark.log.decompress import MAX_DECOMPRESSED
from tests.broker.storage.storage_helpers import NOW, log_config
from tests.log.batch_builder import CODECS, GZIP, LZ4, NONE, V2Record, batch


def sized(codec: int, size: int) -> memoryview:
    """A batch as far as its size and codec go."""
    data = bytearray(size)
    data[layout.ATTRIBUTES_AT + 1] = codec
    return memoryview(data)


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_a_batch_of_the_usual_size_is_validated_at_once(codec):
    assert bytes_at_once(sized(codec, 64 << 10), "producer") == AT_ONCE[codec]


def test_a_batch_that_takes_long_to_unfold_goes_to_a_thread():
    assert bytes_at_once(sized(LZ4, 1 << 20), "producer") == AT_ONCE[LZ4]
    assert bytes_at_once(sized(LZ4, (1 << 20) + 1), "producer") == 0
    assert bytes_at_once(sized(GZIP, (256 << 10) + 1), "producer") == 0


def test_an_uncompressed_batch_is_validated_at_once_however_large():
    assert bytes_at_once(sized(NONE, 10 << 20), "producer") == MAX_DECOMPRESSED
    assert bytes_at_once(sized(NONE, 10 << 20), "uncompressed") == MAX_DECOMPRESSED


def test_a_batch_that_is_packed_anew_goes_to_a_thread_unless_it_is_small():
    assert bytes_at_once(sized(NONE, PACKED_AT_ONCE + 1), "zstd") == 0
    assert bytes_at_once(sized(LZ4, PACKED_AT_ONCE + 1), "gzip") == 0
    assert bytes_at_once(sized(LZ4, PACKED_AT_ONCE + 1), "lz4") == AT_ONCE[LZ4]
    assert bytes_at_once(sized(NONE, PACKED_AT_ONCE), "zstd") == MAX_DECOMPRESSED


@pytest.mark.parametrize("data", [b"", bytes(layout.RECORDS_AT), bytes(sized(7, 100))])
def test_what_is_no_batch_is_left_to_validation(data):
    assert bytes_at_once(memoryview(data), "producer") == MAX_DECOMPRESSED


@pytest.mark.parametrize("codec", sorted(set(CODECS.values()) - {NONE}))
def test_a_batch_that_unfolds_further_than_there_is_time_for_is_not_refused_but_given_back(codec):
    data = batch(0, [V2Record(0, NOW, value=bytes(3 << 20))], codec=codec)
    limit = 1 << 20
    with pytest.raises(UnfoldsTooFar):
        validate_batch(data, log_config(max_message_bytes=4 << 20), NOW, unfold_limit=limit)
    assert validate_batch(data, log_config(max_message_bytes=4 << 20), NOW).record_count == 1
