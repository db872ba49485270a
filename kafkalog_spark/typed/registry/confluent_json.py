"""The format `confluent-json`: JSON with a schema's id before it. The schema is not needed to read it, and not asked
for; what the JSON means is said by the columns of the projection, as in format `json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed.columns.buffer_pool import Values
from kafkalog_spark.typed.columns.byte_slices import ByteSlices, Fragment, as_values, is_binary, is_text, valid_of
from kafkalog_spark.typed.decoder import Decoded, ResolvedFormat, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.json import format as json_format
from kafkalog_spark.typed.registry.framing import NO_ID, Framed, header_name, unframed
from kafkalog_spark.typed.registry.options import REGISTRY_OPTIONS, client_options
from kafkalog_spark.typed.registry.schemas import JSON

_OF_REGISTRY = (
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.ssl.ca.location",
)
OPTIONS = (
    *json_format.OPTIONS,
    *(spec for spec in REGISTRY_OPTIONS if spec.name in _OF_REGISTRY),
    OptionSpec(
        "subject",
        plain_text,
        None,
        "Writes: the subject whose latest JSON Schema the texts are said to be of.",
        "format",
    ),
)
schema = json_format.schema


def decoder(format: ResolvedFormat, projection: pa.Schema) -> ValueDecoder:
    """Raises OptionError."""
    return ConfluentJsonDecoder(format, projection)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Raises OptionError, also for a column that is no text; SchemaRegistryError where the subject has no schema."""
    from kafkalog_spark.typed.registry.client import RegistryClient
    from kafkalog_spark.typed.registry.options import subject_schema

    column = given.field(0)
    if given.names not in (["value"], ["key"]) or not (is_text(column.type) or is_binary(column.type)):
        raise OptionError(
            f"confluent-json puts a schema's id before a column value or key of JSON texts, got "
            f"{', '.join(f'{field.name} {field.type}' for field in given)}",
            hint="write to_json(struct(...)) AS value",
        )
    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError("to write confluent-json, options schema.registry.url and value.subject are needed")
    found = subject_schema(options, RegistryClient(client_options(options)))
    if found.kind != JSON:
        raise OptionError(f"subject {options['subject']} has schemas of {found.kind}, not of JSON")
    return FramingEncoder(b"\0" + found.id.to_bytes(4, "big"))


class FramingEncoder:
    """Puts a prefix before each text, which is not looked into."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode."""
        column = columns.flatten()[0]
        return as_values([Fragment(ByteSlices.of(column))], self._prefix, valid_of(column))


class ConfluentJsonDecoder:
    """Decodes what follows the prefix. A value without one is bad. `headers_too`: the id may be in a header."""

    headers_too = True

    def __init__(self, format: ResolvedFormat, projection: pa.Schema) -> None:
        self.schema = projection
        self._inner = json_format.decoder(format, projection)
        self._header = header_name(format.side)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray, headers: Any = None) -> Decoded:
        """As ValueDecoder.decode."""
        framed = unframed(Values.of(values), headers, self._header)
        unnamed = (framed.which < 0) & (framed.values.ends >= 0)
        decoded = self._inner.decode(_as_array(framed))
        if not unnamed.any():
            return decoded
        bad = unnamed if decoded.bad is None else decoded.bad | unnamed

        def why(i: int) -> str:
            return NO_ID if unnamed[i] else decoded.why(i)

        return Decoded(decoded.columns, bad, why)


def _as_array(framed: Framed) -> pa.Array:
    """The values without their prefixes, as one array; one that names no schema becomes an empty value, which is bad
    in JSON too."""
    data, starts, ends = framed.values
    sizes = np.where((ends >= 0) & (framed.which >= 0), ends - starts, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    bits = pa.py_buffer(np.packbits(ends >= 0, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)
