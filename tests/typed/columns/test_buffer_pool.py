"""The memory of decoded columns is reused only after nothing refers to it any more."""

from __future__ import annotations

import json
import sysconfig

import numpy as np
import pyarrow as pa
import pytest

from kafkalog_spark.typed.columns.buffer_pool import MAX_KEPT_ARRAYS, MAX_KEPT_BYTES, BufferPool
from kafkalog_spark.typed.columns.column_builder_kernel import Col
from tests.typed.given_formats import decoder_of

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}
WANTED = pa.schema([("id", pa.int64()), ("text", pa.string())])
counts_exactly = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="references are counted lazily"
)


def values(first: int, count: int) -> pa.Array:
    """ids from `first` on, below 64, with a text of that many letters each; every third is null."""
    rows = []
    for i in range(first, first + count):
        text = b"\0" if i % 3 == 0 else b"\2" + bytes([2 * i]) + b"x" * i
        rows.append(bytes([2 * i]) + text)
    return pa.array(rows, pa.binary())


def expected(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": i, "text": None if i % 3 == 0 else "x" * i} for i in range(first, first + count)]


def test_referenced_batch_is_not_overwritten() -> None:
    decoder = decoder_of("avro", {"schema": json.dumps(SCHEMA)}, WANTED)
    held = [decoder.decode(values(first, 20)).columns for first in range(0, 40, 5)]
    field = decoder.decode(values(7, 30)).columns.field("id")  # a part of a batch keeps that part
    view = decoder.decode(values(9, 30)).columns.field("id").to_numpy()
    decoder.decode(values(1, 40))
    for first, columns in zip(range(0, 40, 5), held, strict=True):
        assert columns.to_pylist() == expected(first, 20)
    assert field.to_pylist() == list(range(7, 37))
    assert view.tolist() == list(range(9, 39))


def test_referenced_json_batch_is_not_overwritten() -> None:
    decoder = decoder_of("json", {}, WANTED)

    def decoded(first: int, count: int) -> pa.StructArray:
        texts = [f'{{"id":{i},"text":"{"x" * (i % 7 + 1)}"}}'.encode() for i in range(first, first + count)]
        return decoder.decode(pa.array(texts, pa.binary())).columns

    held = {(first, count): decoded(first, count) for first in range(0, 400, 50) for count in (5, 50)}
    part = decoded(7, 300).slice(3, 20)
    ids = decoded(9, 30).field("id").to_numpy()
    decoded(1, 400)
    for (first, count), columns in held.items():
        assert columns.to_pylist() == [{"id": i, "text": "x" * (i % 7 + 1)} for i in range(first, first + count)]
    assert part.to_pylist() == [{"id": i, "text": "x" * (i % 7 + 1)} for i in range(10, 30)]
    assert ids.tolist() == list(range(9, 39))


@counts_exactly
def test_memory_is_reused_after_its_batch_is_released() -> None:
    decoder = decoder_of("avro", {"schema": json.dumps(SCHEMA)}, WANTED)

    def address() -> int:
        found = decoder.decode(values(1, 40)).columns.field("id").buffers()[1]
        return int(found.address)

    assert address() == address()


@counts_exactly
def test_pool_keeps_few_arrays_and_no_large_ones() -> None:
    pool = BufferPool()
    used = [pool.take(0, Col.DATA, 10, np.uint8) for _ in range(MAX_KEPT_ARRAYS + 2)]
    assert len({array.ctypes.data for array in used}) == MAX_KEPT_ARRAYS + 2
    last = used[-1].ctypes.data
    del used
    assert pool.take(0, Col.DATA, 10, np.uint8).ctypes.data == last
    assert len(pool.take(0, Col.DATA, 11, np.uint8)) == 11  # none of those is large enough
    assert pool.take(1, Col.DATA, 10, np.uint8).ctypes.data != last
    pool.take(2, Col.DATA, MAX_KEPT_BYTES + 1, np.uint8)
    assert [len(kept) for kept in pool._kept.values()] == [MAX_KEPT_ARRAYS, 1, 0]
