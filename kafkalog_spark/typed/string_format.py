"""The format `string`: values as UTF-8 text, unchanged, as in Spark's cast from binary to string."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.formats import ResolvedFormat

OPTIONS: tuple[OptionSpec, ...] = ()


def schema(format: ResolvedFormat) -> pa.Schema:
    return pa.schema([("value", pa.string())])


def decoder(format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Return a decoder of one string column. Raises OptionError for any other projection."""
    if len(projection) != 1 or projection.field(0).type != pa.string():
        raise OptionError(
            "the format string has one column of type string",
            hint="request it as `value string`, or `key string`",
        )
    return StringDecoder(projection)


def encoder(options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
    """Return an encoder of one string column. Raises OptionError for any other columns."""
    if len(row_schema) != 1 or row_schema.field(0).type not in (pa.string(), pa.large_string()):
        raise OptionError(
            f"the format string writes one column of type string, not {', '.join(row_schema.names) or 'none'}"
        )
    return StringEncoder()


class StringDecoder:
    """Decoder that reinterprets the bytes of values as strings. It does not check that they are UTF-8."""

    def __init__(self, projection: pa.Schema) -> None:
        self.schema = projection

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        values = values.cast(pa.binary())
        texts = pa.Array.from_buffers(
            pa.string(), len(values), values.buffers(), null_count=values.null_count, offset=values.offset
        )
        columns = pa.StructArray.from_arrays([texts], fields=list(self.schema), mask=pc.is_null(values))
        return Decoded(columns, None, lambda i: "")


class StringEncoder:
    """Encoder that writes the UTF-8 bytes of a string column."""

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        return columns.flatten()[0].cast(pa.binary())
