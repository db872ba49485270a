"""The format `protobuf`: messages of one descriptor, with the meaning of Spark's from_protobuf."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns.buffer_pool import Values
from kafkalog_spark.typed.ddl import file_bytes
from kafkalog_spark.typed.decoder import Decoded, SchemaSources, ValueDecoder, ValueEncoder
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of

_CONTENT = "descriptors"
OPTIONS: Mapping[str, str] = {
    "descFilePath": "A descriptor set: what protoc --include_imports --descriptor_set_out writes.",
    "messageName": "The message, by its name or full name.",
    **types.OPTIONS,
    _CONTENT: "Set by kafkalog: the descriptor set itself.",
}


def settled(options: Mapping[str, str], sources: SchemaSources) -> dict[str, str]:
    """The options with the descriptor set in the place of its file."""
    found = dict(options)
    if _CONTENT not in found:
        found[_CONTENT] = base64.b64encode(_content(options)).decode()
    return found


def schema(options: Mapping[str, str]) -> pa.Schema:
    """The columns of the message."""
    return pa.schema(list(types.message_type(_descriptor(options), types.meaning_of(options))))


def decoder(options: Mapping[str, str], wanted: pa.Schema) -> ValueDecoder:
    """Raises OptionError."""
    return ProtobufDecoder(options, wanted)


def encoder(options: Mapping[str, str], given: pa.Schema) -> ValueEncoder:
    """Raises OptionError."""
    from kafkalog_spark.typed.protobuf.encoder import ProtobufEncoder

    return ProtobufEncoder(_descriptor(options), given)


def _content(options: Mapping[str, str]) -> bytes:
    if _CONTENT in options:
        return base64.b64decode(options[_CONTENT])
    path = options.get("descfilepath")
    if path is None:
        raise OptionError(
            "messages in Protobuf say nothing of their types, and neither does an option",
            hint="descFilePath names a descriptor set, messageName the message; values with a registry's prefix are of "
            "format confluent-protobuf",
        )
    return file_bytes("descFilePath", path)


def _descriptor(options: Mapping[str, str]) -> Any:
    if "messagename" not in options:
        raise OptionError("option 'messageName' is missing: which message of the descriptor set the values are")
    place = options.get("descfilepath", "the descriptor set")
    pool, names = pool_of(_content(options), place)
    return message_of(pool, names, options["messagename"], place)


class ProtobufDecoder:
    """Decodes messages of one descriptor."""

    def __init__(self, options: Mapping[str, str], wanted: pa.Schema) -> None:
        from kafkalog_spark.typed.protobuf.reading import ProtobufReading  # loads numba

        descriptor = _descriptor(options)
        self.schema = wanted
        self._reading = ProtobufReading(descriptor, wanted, types.meaning_of(options))
        self._entry = self._reading.entry_of(descriptor)

    def decode(self, values: pa.BinaryArray | pa.LargeBinaryArray) -> Decoded:
        """As ValueDecoder.decode."""
        return self._reading.decode(Values.of(values), np.full(len(values), self._entry, np.int64))
