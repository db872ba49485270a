"""Results of Spark's own functions, to compare with kafkalog's decoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.formats import ResolvedFormat

Rows = list[dict[str, Any] | None]


def by_spark(spark: Any, function: str, values: Sequence[bytes | None], ddl: str, options: Mapping[str, str]) -> Rows:
    """The function of those values, such as from_json."""
    from pyspark.sql import functions

    frame = spark.createDataFrame(pa.table({"value": pa.array(values, pa.binary())}))
    found = getattr(functions, function)(frame["value"].cast("string"), ddl, dict(options))
    return comparable(frame.select(found.alias("row")).toArrow().column("row").combine_chunks())


def by_us(name: str, values: Sequence[bytes | None], ddl: str, options: Mapping[str, str]) -> Rows:
    """Decode the values with kafkalog's decoder."""
    lower = {key.lower(): text for key, text in options.items()}
    decoder = ResolvedFormat(name, lower).decoder(schema_of_ddl(ddl))
    return comparable(decoder.decode(pa.array(values, pa.binary())).columns)


def frame_of(spark: Any, rows: pa.StructArray) -> Any:
    """Rows as the column `row`; timestamps without a zone are TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.table({"row": rows})
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def comparable(rows: pa.StructArray | pa.ChunkedArray) -> Rows:
    """Dates and timestamps as numbers, and texts that need not be UTF-8 as bytes."""
    if isinstance(rows, pa.ChunkedArray):
        rows = pa.concat_arrays(rows.chunks)
    return list(_raw(rows).to_pylist())


def _raw(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [_raw(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=array.is_null())
    if kind == pa.string():
        return pa.Array.from_buffers(pa.binary(), len(array), array.buffers(), array.null_count, array.offset)
    if kind == pa.date32():
        return array.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64())
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        nested = _simple(kind)
        return array if nested == kind else array.cast(nested)
    return array


def _simple(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_simple(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_simple(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _simple(kind.item_type))
    if kind == pa.date32():
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def assert_same(ours: Rows, theirs: Rows, values: Sequence[bytes | None]) -> None:
    """Row by row and field by field; -0.0 is not 0.0, and NaN is NaN."""
    wrong = []
    for one, other, value in zip(ours, theirs, values, strict=True):
        if repr(one) == repr(other):
            continue
        if one is None or other is None:
            wrong.append((value, "row", one, other))
        else:
            wrong += [(value, k, one[k], other[k]) for k in other if repr(one[k]) != repr(other[k])]
    shown = "\n".join(
        f"{field}: ours {one!r}, Spark's {other!r}, of {value!r}" for value, field, one, other in wrong[:5]
    )
    assert not wrong, f"{len(wrong)} fields differ\n{shown}"
