"""Rows to JSON, as Spark's to_json writes them (JacksonGenerator), a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed import json_writing_kernel as kernel
from kafkalog_spark.typed.java_text import json_quoted
from kafkalog_spark.typed.json_options import JsonOptions, check_no_patterns
from kafkalog_spark.typed.json_types import check_written_types
from kafkalog_spark.typed.pieces.pieces import Part, Pieces, as_values, elements, enclosed, joined, room, valid_of
from kafkalog_spark.typed.pieces.texts import is_binary, is_text, well_formed
from kafkalog_spark.typed.scalar_texts import scalar_texts

_OBJECT, _LIST = b"{}", b"[]"


class JsonEncoder:
    """Encodes rows as objects; fields that are null are left out, unless ignoreNullFields is false. prefix: what begins
    each value. Raises OptionError for a type or an option that is refused."""

    def __init__(self, given: pa.Schema, options: JsonOptions, prefix: bytes = b"") -> None:
        check_written_types(given)
        check_no_patterns(options)
        self._options, self._prefix = options, prefix

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord."""
        return as_values([Part(self._object(columns))], self._prefix, valid_of(columns))

    def _object(self, columns: pa.StructArray) -> Pieces:
        parts = []
        for field, column in zip(columns.type, columns.flatten(), strict=True):
            name = f",{json_quoted(field.name)}:".encode()
            absent = b"" if self._options.ignore_null_fields else name + b"null"
            parts.append(Part(self._pieces(column), name, valid_of(column), absent))
        return enclosed(parts, len(columns), _OBJECT)

    def _pieces(self, column: pa.Array) -> Pieces:
        """The text of each entry; any for null."""
        kind = column.type
        if pa.types.is_struct(kind):
            return self._object(column)
        if pa.types.is_map(kind):
            entries, offsets = elements(column)
            key, value = entries.flatten()
            parts = [Part(_quoted(key), b","), Part(self._pieces(value), b":", valid_of(value), b":null")]
            return _within(joined(parts).lists(offsets), _OBJECT)
        if pa.types.is_list(kind):
            held, offsets = elements(column)
            part = Part(self._pieces(held), b",", valid_of(held), b",null")
            return _within(joined([part]).lists(offsets), _LIST)
        return self._scalars(column)

    def _scalars(self, column: pa.Array) -> Pieces:
        kind = column.type
        if is_text(kind):
            return _quoted(column)
        if is_binary(kind):
            return _base64(column)
        return scalar_texts(column, self._options.zone, quoted=True)


def _within(pieces: Pieces, brackets: bytes) -> Pieces:
    return enclosed([Part(pieces)], len(pieces), brackets)


def _quoted(texts: pa.Array) -> Pieces:
    pieces = Pieces.of(well_formed(texts))
    sizes = np.empty(len(texts), np.int64)
    kernel.quoted_sizes(pieces.data, pieces.offsets, kernel.ESCAPES, sizes)
    made = room(sizes)
    kernel.write_quoted(pieces.data, pieces.offsets, kernel.ESCAPES, made.data, made.offsets)
    return made


def _base64(values: pa.Array) -> Pieces:
    pieces = Pieces.of(values)
    made = room((pieces.sizes() + 2) // 3 * 4 + 2)
    kernel.write_base64(pieces.data, pieces.offsets, made.data, made.offsets)
    return made
