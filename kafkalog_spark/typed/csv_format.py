"""The format `csv`: values that are one line of fields, with the meaning of Spark's from_csv."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.spare import SpareMemory
from kafkalog_spark.typed.columns.wanted import check_wanted
from kafkalog_spark.typed.csv_options import OPTIONS, CsvOptions, csv_options
from kafkalog_spark.typed.csv_values import CsvRows
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.json_program import JsonProgram
from kafkalog_spark.typed.json_types import check_types
from kafkalog_spark.typed.left_rows import buffers_of, corrupt_place, decoded_slowly, merged, with_column

__all__ = ["OPTIONS", "CsvDecoder", "decoder", "encoder", "schema"]


def schema(options: Mapping[str, str]) -> pa.Schema:
    """What option `schema` says. Raises OptionError."""
    text = options.get("schema")
    if text is None:
        raise OptionError(
            "CSV says nothing of its columns, and neither does an option",
            hint='name them in their order in .schema("id bigint, user string") or the option value.schema',
        )
    return schema_of_ddl(text)


def decoder(options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError for an option or a type that is refused. With option `schema` the wanted columns may be some
    of those of the values; without it they are all."""
    return CsvDecoder(schema(options) if "schema" in options else wanted, wanted, csv_options(options))


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Raises OptionError for an option or a type that is refused."""
    from kafkalog_spark.typed.csv_encoder import CsvEncoder, csv_writing

    return CsvEncoder(given, csv_writing(options))


class CsvDecoder:
    """Decodes lines. columns: of the values, in their order; a column of the corrupt record's name is none of them, and
    holds the text of a bad value."""

    def __init__(self, columns: pa.Schema, wanted: pa.Schema, options: CsvOptions) -> None:
        corrupt = options.civil.corrupt
        self._corrupt = corrupt_place(wanted, corrupt)
        self.schema = wanted
        columns = pa.schema([field for field in columns if field.name != corrupt])
        read = pa.schema([field for field in wanted if field.name != corrupt])
        check_types(columns)
        for field in columns:
            if pa.types.is_nested(field.type) or field.type == pa.binary():
                raise OptionError(f"column '{field.name}': the type {field.type} is not decoded from CSV")
        check_types(read)
        check_wanted(pa.struct(list(read)), pa.struct(list(columns)), "")
        self._options = options
        self._rows = CsvRows(columns, set(read.names), options)
        self._program = JsonProgram(read, options.civil)
        self._places = [1 + read.get_field_index(name) for name in columns.names]  # 0: not wanted
        self._spare = SpareMemory()

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """As ValueDecoder.decode."""
        if not self._options.is_plain:
            return self._slow_rows(values)
        from kafkalog_spark.typed.csv_columns import CsvDecoding  # the kernel comes with it
        from kafkalog_spark.typed.json_columns import TooMuchText

        try:
            decoding = CsvDecoding(self._program, self._places, self._options, self._spare, *buffers_of(values))
            columns = self._with_corrupt(decoding.columns())
        except (TooMuchText, pa.ArrowInvalid):  # nothing is lost but time
            return self._slow_rows(values)
        if not len(decoding.left):
            return Decoded(columns, None, lambda i: "")
        return merged(columns, decoding.left, self._slow_rows(values.take(pa.array(decoding.left))))

    def _slow_rows(self, values: pa.Array) -> Decoded:
        """Value by value."""
        return decoded_slowly(values, self._rows.row, self.schema)

    def _with_corrupt(self, columns: pa.StructArray) -> pa.StructArray:
        """With a column of nulls where the corrupt record's is wanted: what the kernel decodes is not bad."""
        if self._corrupt < 0:
            return columns
        return with_column(columns, self._corrupt, pa.nulls(len(columns), pa.string()), self.schema)
