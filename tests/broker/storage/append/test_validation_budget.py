from __future__ import annotations

import pytest

from kafkalog_broker.storage.append import kernel_loading, record_walk
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.validation_budget import (
    LOOP_BUDGETS,
    LOOP_RECORDS,
    THREAD_BUDGET,
    TakesTooLong,
    event_loop_budget,
)
from kafkalog_spark.format import layout
from tests.broker.storage.helpers.stored_logs import NOW, log_config, sent
from tests.log.helpers.batch_builder import CODECS, GZIP, LZ4, NONE, SNAPPY, ZSTD, V2Record, batch, encoded, sealed
from tests.log.helpers.compressed_streams import lz4_linked_blocks, xerial_blocks

LARGE = {"max_message_bytes": 64 << 20}
PIECES, RECOMPRESSED_BYTES = 200, 64 << 10


def test_event_loop_budgets_have_the_measured_values() -> None:
    assert {codec: budget.decompressed_bytes for codec, budget in LOOP_BUDGETS.items()} == {
        NONE: 2 << 20, GZIP: 256 << 10, SNAPPY: 1 << 20, LZ4: 1 << 20, ZSTD: 1 << 20
    }  # fmt: skip
    assert {(budget.pieces, budget.recompressed_bytes) for budget in LOOP_BUDGETS.values()} == {
        (PIECES, RECOMPRESSED_BYTES)
    }
    assert all(budget.in_event_loop for budget in LOOP_BUDGETS.values())
    assert not THREAD_BUDGET.in_event_loop


def sized(codec: int, size: int, count: int = 1) -> memoryview:
    """Return bytes with the size, codec and record count of such a batch."""
    data = bytearray(size)
    data[layout.ATTRIBUTES_AT + 1] = codec
    data[layout.RECORDS_AT - 4 : layout.RECORDS_AT] = count.to_bytes(4, "big", signed=True)
    return memoryview(data)


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_batch_of_usual_size_is_validated_in_the_event_loop(codec):
    assert event_loop_budget(sized(codec, 64 << 10, 10_000)) is LOOP_BUDGETS[codec]


def test_batch_that_takes_long_to_decompress_is_validated_in_a_thread():
    assert event_loop_budget(sized(LZ4, 256 << 10)) is LOOP_BUDGETS[LZ4]
    assert event_loop_budget(sized(LZ4, (256 << 10) + 1)) is None
    assert event_loop_budget(sized(GZIP, (64 << 10) + 1)) is None


def test_large_uncompressed_batch_is_validated_in_a_thread():
    assert event_loop_budget(sized(NONE, 2 << 20)) is LOOP_BUDGETS[NONE]
    assert event_loop_budget(sized(NONE, (2 << 20) + 1)) is None


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
def test_batch_of_many_records_is_validated_in_a_thread(codec):
    size = LOOP_RECORDS + 1
    assert event_loop_budget(sized(codec, size, LOOP_RECORDS)) is LOOP_BUDGETS[codec]
    assert event_loop_budget(sized(codec, size, LOOP_RECORDS + 1)) is None
    assert event_loop_budget(sized(codec, size, -1)) is LOOP_BUDGETS[codec]


def test_small_uncompressed_batch_is_validated_in_the_event_loop_despite_a_large_record_count():
    assert event_loop_budget(sized(NONE, LOOP_RECORDS, 2**31 - 1)) is LOOP_BUDGETS[NONE]


@pytest.mark.parametrize("data", [b"", bytes(layout.RECORDS_AT - 1), bytes(sized(7, 100))])
def test_bytes_without_a_batch_are_left_to_validation(data):
    assert event_loop_budget(memoryview(data)) is LOOP_BUDGETS[NONE]


def too_long(data: bytes, **config: object) -> None:
    """Assert that the event loop declines the batch and that a thread accepts it."""
    budget = event_loop_budget(memoryview(data))
    assert budget is not None
    with pytest.raises(TakesTooLong):
        validate_batch(data, log_config(**LARGE, **config), NOW, budget)
    validate_batch(data, log_config(**LARGE, **config), NOW)


@pytest.mark.parametrize("codec", sorted(set(CODECS.values()) - {NONE}))
def test_batch_that_decompresses_beyond_the_event_loop_budget_is_validated_in_a_thread(codec):
    too_long(batch(0, [V2Record(0, NOW, value=bytes(LOOP_BUDGETS[codec].decompressed_bytes))], codec=codec))


def test_small_gzip_batch_with_a_high_ratio_is_not_decompressed_in_the_event_loop():
    data = batch(0, [V2Record(0, NOW, value=bytes(1 << 20))], codec=GZIP)
    assert len(data) < 1200
    too_long(data)


@pytest.mark.parametrize(("codec", "cut"), [(LZ4, lz4_linked_blocks), (SNAPPY, xerial_blocks)])
def test_compressed_stream_of_many_small_blocks_is_not_decompressed_in_the_event_loop(codec, cut):
    record = encoded([V2Record(0, NOW, value=bytes(PIECES))], 0, NOW)
    data = bytearray(batch(0, [V2Record(0, NOW)], payload=cut(record, 1)))
    data[layout.ATTRIBUTES_AT + 1] = codec
    too_long(sealed(bytes(data)))


@pytest.mark.parametrize("target", ["gzip", "zstd", "lz4", "snappy"])
def test_batch_to_recompress_is_validated_in_a_thread_unless_small(target):
    too_long(batch(0, [V2Record(0, NOW, value=bytes(RECOMPRESSED_BYTES))]), compression_type=target)
    small = batch(0, [V2Record(0, NOW, value=bytes(RECOMPRESSED_BYTES - 100))])
    validate_batch(small, log_config(compression_type=target), NOW, LOOP_BUDGETS[NONE])


def test_batch_to_renumber_and_recompress_is_validated_in_a_thread():
    records = [V2Record(0, NOW, value=bytes(RECOMPRESSED_BYTES)), V2Record(0, NOW)]
    too_long(batch(0, records, codec=LZ4, last_offset=1))


@pytest.mark.parametrize("data", [sent(1001, size=0), batch(0, [V2Record(0, NOW, headers=((b"", b""),) * 1001)])])
def test_event_loop_neither_loads_the_compiled_walk_nor_walks_large_batches_in_python(data, monkeypatch):
    kernel = kernel_loading.load_kernel()
    monkeypatch.setattr(kernel_loading, "_kernel", None)
    monkeypatch.setattr(record_walk, "start_loading_kernel", lambda: None)
    with pytest.raises(TakesTooLong):
        validate_batch(data, log_config(), NOW, LOOP_BUDGETS[NONE])
    monkeypatch.setattr(kernel_loading, "_kernel", kernel)
    assert validate_batch(data, log_config(), NOW, LOOP_BUDGETS[NONE]).data == data
