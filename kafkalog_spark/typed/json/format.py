"""The format `json`: values that are JSON objects, decoded like Spark's from_json."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.buffer_pool import BufferPool
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder
from kafkalog_spark.typed.formats import ResolvedFormat
from kafkalog_spark.typed.json.fallback import FallbackDecoder, MalformedValue
from kafkalog_spark.typed.json.options import OPTIONS, JsonOptions, json_options
from kafkalog_spark.typed.json.program import JsonProgram

__all__ = ["OPTIONS", "JsonDecoder", "decoder", "schema"]


def schema(format: ResolvedFormat) -> pa.Schema:
    """Return the columns that option `schema` declares. Raises OptionError if it is absent."""
    text = format.options.get("schema")
    if text is None:
        raise OptionError(
            "values in JSON do not contain their schema, and no option declares it",
            hint='declare the columns in .schema("id bigint, user string") or the option value.schema; '
            "kafkalog-schema DIR -t TOPIC infers them from a sample",
        )
    return schema_of_ddl(text)


def decoder(format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    return JsonDecoder(projection, json_options(format.options))


class JsonDecoder:
    """Decoder of JSON objects.

    The kernel decodes most values, and `FallbackDecoder` the others. The column that `columnNameOfCorruptRecord` names
    contains the text of malformed values, if the projection has it.
    """

    def __init__(self, projection: pa.Schema, options: JsonOptions) -> None:
        self.schema = projection
        self._corrupt_index: int = projection.get_field_index(options.corrupt_column)
        if self._corrupt_index >= 0 and projection.field(self._corrupt_index).type != pa.string():
            raise OptionError(
                f"column '{options.corrupt_column}' is for the text of bad values, so it must be a string",
                hint="option columnNameOfCorruptRecord selects another column for it",
            )
        self._parsed_schema = pa.schema([field for field in projection if field.name != options.corrupt_column])
        self._fallback_decoder = FallbackDecoder(self._parsed_schema, options)
        self._program = JsonProgram(self._parsed_schema, options)
        self._pool = BufferPool()

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        from kafkalog_spark.typed.json.batch import JsonBatch, StringsTooLarge  # loads numba

        try:
            batch = JsonBatch(self._program, self._pool, Values.of(values))
            columns = batch.columns()
        except (StringsTooLarge, pa.ArrowInvalid):  # the fallback is slower and has no such limits
            return self._decode_all_with_fallback(values)
        deferred = batch.deferred
        if not len(deferred):
            return Decoded(self._with_corrupt_column(columns, values, None), None, lambda i: "")
        decoded = self._decode_with_fallback(values.take(pa.array(deferred)))
        sources = np.arange(len(columns))  # index of each row in the rows of the kernel and of the fallback
        sources[deferred] = len(columns) + np.arange(len(deferred))
        columns = pa.concat_arrays([columns, decoded.columns]).take(pa.array(sources))
        bad = None
        if decoded.bad is not None:
            bad = np.zeros(len(columns), np.bool_)
            bad[deferred] = decoded.bad
        columns = self._with_corrupt_column(columns, values, bad)
        return Decoded(columns, bad, lambda i: decoded.why(int(np.searchsorted(deferred, i))))

    def _decode_all_with_fallback(self, values: pa.Array) -> Decoded:
        decoded = self._decode_with_fallback(values)
        return decoded._replace(columns=self._with_corrupt_column(decoded.columns, values, decoded.bad))

    def _decode_with_fallback(self, values: pa.Array) -> Decoded:
        """Decode value by value. The result does not have the column for malformed values."""
        rows, reasons = [], {}
        for i, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else self._fallback_decoder.decode(value))
            except MalformedValue as error:
                reasons[i] = str(error)
                rows.append(error.value or {})
        bad = np.zeros(len(rows), np.bool_)
        bad[list(reasons)] = True
        columns = pa.array(rows, pa.struct(list(self._parsed_schema)))
        return Decoded(columns, bad if reasons else None, lambda i: reasons[i])

    def _with_corrupt_column(self, columns: pa.StructArray, values: pa.Array, bad: np.ndarray | None) -> pa.StructArray:
        if self._corrupt_index < 0:
            return columns
        texts = pa.nulls(len(values), pa.string())
        if bad is not None:  # as in Spark, bytes that are not UTF-8 are kept
            raw = pc.if_else(pa.array(bad), values.cast(pa.binary()), pa.scalar(None, pa.binary()))
            texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count, raw.offset)
        arrays = [columns.field(i) for i in range(columns.type.num_fields)]
        arrays.insert(self._corrupt_index, texts)
        return pa.StructArray.from_arrays(arrays, fields=list(self.schema), mask=columns.is_null())
