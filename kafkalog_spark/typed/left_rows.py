"""Values as the kernel of JSON takes them, and the rows that it leaves to plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.values import bytes_and_offsets
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.json_values import BadValue


def merged(columns: pa.StructArray, left: np.ndarray, slow: Decoded) -> Decoded:
    """A kernel's columns with the rows that it left, which are those of `slow`. left int64[m]: their numbers."""
    rows = np.arange(len(columns))
    rows[left] = len(columns) + np.arange(len(left))
    together = pa.concat_arrays([columns, slow.columns]).take(pa.array(rows))
    if slow.bad is None:
        return Decoded(together, None, slow.why)
    bad = np.zeros(len(columns), np.bool_)
    bad[left] = slow.bad
    places = {int(row): i for i, row in enumerate(left)}
    return Decoded(together, bad, lambda i: slow.why(places[i]))


def decoded_slowly(values: pa.Array, row_of: Callable[[bytes], dict[str, Any] | None], schema: pa.Schema) -> Decoded:
    """Value by value. row_of raises BadValue, whose row has what could be read."""
    rows: list[dict[str, Any] | None] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(values):
        data = value.as_py()
        try:
            rows.append(None if data is None else row_of(data))
        except BadValue as bad:
            reasons[i] = str(bad)
            rows.append(bad.row or {})
    return of_rows(rows, reasons, schema)


def corrupt_place(wanted: pa.Schema, name: str) -> int:
    """Where among the wanted columns the text of bad values goes, below 0 where nobody wants it. Raises OptionError."""
    place: int = wanted.get_field_index(name)
    if place >= 0 and wanted.field(place).type != pa.string():
        raise OptionError(
            f"column '{name}' is for the text of bad values, so it must be a string",
            hint="option columnNameOfCorruptRecord gives that column another name",
        )
    return place


def with_column(columns: pa.StructArray, place: int, texts: pa.Array, schema: pa.Schema) -> pa.StructArray:
    """Columns with one more at a place, which makes them those of the schema."""
    arrays = [columns.field(i) for i in range(columns.type.num_fields)]
    arrays.insert(place, texts)
    return pa.StructArray.from_arrays(arrays, fields=list(schema), mask=columns.is_null())


def of_rows(rows: list[dict[str, Any] | None], reasons: Mapping[int, str], schema: pa.Schema) -> Decoded:
    """Rows as dicts to columns; reasons: why row i is bad, for those that are."""
    bad = np.zeros(len(rows), np.bool_)
    bad[list(reasons)] = True
    columns = pa.array(rows, pa.struct(list(schema)))
    return Decoded(columns, bad if reasons else None, lambda i: reasons[i])


def buffers_of(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(The bytes, int64 offsets of n values and of their end, uint8 whether each is there), read-only where the kernel
    wants that."""
    content, places = bytes_and_offsets(values)
    content.flags.writeable = False
    present = np.ones(len(values), np.uint8)
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    return content, places, present
