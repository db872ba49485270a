"""Requirements on all encoders: empty arrays, null rows, and slices of arrays."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from kafkalog_spark.typed.formats import format_of
from tests.typed.random_rows import PLAIN, random_rows

OTHERS = (pa.decimal128(9, 2), pa.null(), pa.large_string(), pa.large_binary())


@pytest.mark.parametrize("kind", [*PLAIN, *OTHERS], ids=str)
def test_encoders_accept_empty_arrays_and_null_rows(kind: pa.DataType) -> None:
    for type_ in (kind, pa.list_(kind), pa.map_(pa.string(), kind), pa.struct([("x", kind)])):
        row = pa.struct([("a", type_), ("b", pa.int32())])
        encoder = format_of("avro").encoder({}, pa.schema(list(row)))
        many = pa.array([{"a": None, "b": 1}, None, {"a": None, "b": 1}], row)
        for rows in (many, many.slice(1, 1), many.slice(2), many.slice(0, 0), pa.array([], row)):
            values = encoder.encode(rows)
            values.validate(full=True)
            assert values.is_valid().to_pylist() == rows.is_valid().to_pylist()


def test_sliced_array_is_encoded_like_its_rows() -> None:
    for seed in range(20):
        rows = random_rows(Random(seed), 30)
        if any('"' in field.name for field in rows.type):
            continue
        encoder = format_of("avro").encoder({}, pa.schema(list(rows.type)))
        assert encoder.encode(rows.slice(11, 13)).to_pylist() == encoder.encode(rows).to_pylist()[11:24]
