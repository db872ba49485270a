"""The format `json`: values that are JSON objects, with the meaning of Spark's from_json."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.spare import SpareMemory
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder
from kafkalog_spark.typed.json_options import OPTIONS, JsonOptions, json_options
from kafkalog_spark.typed.json_program import JsonProgram
from kafkalog_spark.typed.json_types import check_types
from kafkalog_spark.typed.json_values import JsonRows
from kafkalog_spark.typed.left_rows import buffers_of, corrupt_place, decoded_slowly, merged, with_column

__all__ = ["OPTIONS", "JsonDecoder", "decoder", "schema"]


def schema(options: Mapping[str, str]) -> pa.Schema:
    """What option `schema` says. Raises OptionError."""
    text = options.get("schema")
    if text is None:
        raise OptionError(
            "JSON says nothing of its columns, and neither does an option",
            hint='name them in .schema("id bigint, user string") or the option value.schema; kafkalog-schema DIR -t '
            "TOPIC makes them from a sample",
        )
    return schema_of_ddl(text)


def decoder(options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError for an option or a type that is refused."""
    return JsonDecoder(wanted, json_options(options))


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
        from kafkalog_spark.typed.json_columns import Decoding, TooMuchText  # the kernel comes with it

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
