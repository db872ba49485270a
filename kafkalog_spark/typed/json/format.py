"""The format `json`: values that are JSON objects, with the meaning of Spark's from_json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.buffer_pool import SpareMemory, bytes_and_offsets
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import Decoded, ResolvedFormat, ValueDecoder
from kafkalog_spark.typed.json.fallback import BadValue, JsonRows
from kafkalog_spark.typed.json.options import OPTIONS, JsonOptions, check_types, json_options
from kafkalog_spark.typed.json.program import JsonProgram

# Values as the kernel of JSON takes them, and the rows that it leaves to plain Python.


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


__all__ = ["OPTIONS", "JsonDecoder", "decoder", "schema"]


def schema(format: ResolvedFormat) -> pa.Schema:
    """Columns by option `schema`. Raises OptionError without it."""
    text = format.options.get("schema")
    if text is None:
        raise OptionError(
            "JSON says nothing of its columns, and neither does an option",
            hint='name them in .schema("id bigint, user string") or the option value.schema; kafkalog-schema DIR -t '
            "TOPIC makes them from a sample",
        )
    return schema_of_ddl(text)


def decoder(format: ResolvedFormat, wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError for an option or a type that is refused."""
    return JsonDecoder(wanted, json_options(format.options))


class JsonDecoder:
    """Decodes JSON objects. A column of the corrupt record's name holds the text of a bad value, as it is."""

    def __init__(self, wanted: pa.Schema, options: JsonOptions) -> None:
        self.schema = wanted
        self._corrupt = corrupt_place(wanted, options.corrupt)
        self._read = pa.schema([field for field in wanted if field.name != options.corrupt])
        check_types(self._read)
        self._options = options
        self._rows = JsonRows(self._read, options)
        self._program = JsonProgram(self._read, options)
        self._spare = SpareMemory()

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """As ValueDecoder.decode."""
        from kafkalog_spark.typed.json.columns import (
            Decoding,  # the kernel comes with it
            TooMuchText,  # the kernel comes with it
        )

        data, offsets, present = buffers_of(values)
        try:
            decoding = Decoding(self._program, self._spare, data, offsets, present)
            columns = decoding.columns()
        except (TooMuchText, pa.ArrowInvalid):  # nothing is lost but time
            return self._slowly(values)
        if not len(decoding.left):
            return Decoded(self._with_corrupt(columns, values, None), None, lambda i: "")
        return self._with_left(values, columns, decoding.left)

    def _with_left(self, values: pa.Array, columns: pa.StructArray, left: np.ndarray) -> Decoded:
        """The kernel's columns with the rows that it left."""
        found = merged(columns, left, self._slow_rows(values.take(pa.array(left))))
        return found._replace(columns=self._with_corrupt(found.columns, values, found.bad))

    def _slowly(self, values: pa.Array) -> Decoded:
        """Value by value."""
        found = self._slow_rows(values)
        return found._replace(columns=self._with_corrupt(found.columns, values, found.bad))

    def _slow_rows(self, values: pa.Array) -> Decoded:
        """Value by value, without the column of the corrupt record."""
        return decoded_slowly(values, self._rows.row, self._read)

    def _with_corrupt(self, columns: pa.StructArray, values: pa.Array, bad: np.ndarray | None) -> pa.StructArray:
        if self._corrupt < 0:
            return columns
        texts = pa.nulls(len(values), pa.string())
        if bad is not None:  # the same bytes, also where they are not UTF-8, as in Spark
            raw = pc.if_else(pa.array(bad), values.cast(pa.binary()), pa.scalar(None, pa.binary()))
            texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count, raw.offset)
        return with_column(columns, self._corrupt, texts, self.schema)
