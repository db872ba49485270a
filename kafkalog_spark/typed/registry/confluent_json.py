"""The format `confluent-json`: JSON values that begin with the ID of their schema. They are read without the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.decoder import Decoded, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.registry.framing import NO_SCHEMA_ID, UnframedValues, id_prefix, remove_prefixes
from kafkalog_spark.typed.registry.schema_store import REGISTRY_OPTIONS, check_write_options, client_of, subject_schema
from kafkalog_spark.typed.registry.schemas import JSON

_REGISTRY_OPTIONS = (
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.ca.location",
)


class ConfluentJson:
    OPTIONS = (
        *json_format.OPTIONS,
        *(spec for spec in REGISTRY_OPTIONS if spec.name in _REGISTRY_OPTIONS),
        OptionSpec("subject", plain_text),
    )
    schema = staticmethod(json_format.schema)

    def decoder(self, format: formats.ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
        return ConfluentJsonDecoder(format, projection)

    def encoder(self, options: Mapping[str, str], row_schema: pa.Schema) -> ValueEncoder:
        """Return an encoder that writes the ID of the subject's latest schema before JSON texts.

        Raises:
            OptionError: If the rows do not have exactly one column `value` or `key` of strings or bytes.
            SchemaRegistryError: If the subject has no schema.
        """
        from kafkalog_spark.typed.columns.type_predicates import is_binary, is_text

        column = row_schema.field(0)
        if row_schema.names not in (["value"], ["key"]) or not (is_text(column.type) or is_binary(column.type)):
            raise OptionError(
                f"confluent-json writes one column value or key of JSON texts after a schema's ID, got "
                f"{', '.join(f'{field.name} {field.type}' for field in row_schema)}",
                hint="write to_json(struct(...)) AS value",
            )
        check_write_options("confluent-json", options)
        return PrefixEncoder(id_prefix(subject_schema(options, client_of(options), JSON).id))


confluent_json = ConfluentJson()


class ConfluentJsonDecoder:
    """Decoder of JSON values with a prefix. A value without a prefix is malformed.

    `needs_headers` tells `decode_column` to pass the headers of records, which may contain the ID.
    """

    needs_headers = True

    def __init__(self, format: formats.ResolvedFormat, projection: pa.Schema) -> None:
        self.schema, self._side = projection, format.side
        self._json_decoder = json_format.decoder(format, projection)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        unframed = remove_prefixes(Values.of(values), headers, self._side)
        lacks_id = (unframed.id_numbers < 0) & (unframed.values.ends >= 0)
        decoded = self._json_decoder.decode(_payloads(unframed))
        if not lacks_id.any():
            return decoded
        bad = lacks_id if decoded.bad is None else decoded.bad | lacks_id
        return Decoded(decoded.columns, bad, lambda i: NO_SCHEMA_ID if lacks_id[i] else decoded.why(i))


def _payloads(unframed: UnframedValues) -> pa.Array:
    """Return the values without their prefixes. A value that names no schema becomes empty."""
    data, starts, ends = unframed.values
    sizes = np.where((ends >= 0) & (unframed.id_numbers >= 0), ends - starts, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    positions = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    bits = pa.py_buffer(np.packbits(ends >= 0, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[positions])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


class PrefixEncoder:
    """Encoder that writes a prefix before each value of a string or binary column. It does not check the values."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment, as_values, valid_of  # loads numba

        column = columns.flatten()[0]
        return as_values([Fragment(ByteSlices.of(column))], self._prefix, valid_of(column))
