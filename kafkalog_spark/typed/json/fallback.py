"""Decoder in Python for the JSON values that the kernel does not decode. It has all rules of from_json.

Like Spark's JacksonParser (convertObject, convertArray, convertMap) and FailureSafeParser, it decides whether an error
makes a field null or the whole value, and which fields of a malformed value are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns import java_text
from kafkalog_spark.typed.json.jackson import JacksonReader, JsonError, Token
from kafkalog_spark.typed.json.options import JsonOptions
from kafkalog_spark.typed.json.scalar_converters import Converter, scalar_converter, token_converter

_Fields = dict[str, tuple[str, Converter]]
"""(name, converter) of each field of a struct, by its name in UTF-16 as Jackson reads it (`java_units`)."""
_CONVERSION_ERRORS = (JsonError, ValueError, ArithmeticError)
"""Exceptions of converters that Spark's JacksonParser catches."""


class MalformedValue(Exception):
    """A JSON value, or an object or array in it, is malformed.

    Attributes:
        value: The part that could be decoded, or None.
    """

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


class FallbackDecoder:
    """Decoder of one value at a time."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        """Create a decoder.

        Args:
            schema: Columns, without the column for malformed values.
            options: Options of from_json.

        Raises:
            OptionError: If JSON cannot be decoded to the type of a column, or a struct has two fields with one name.
        """
        self._options = options
        self._fields = self._converters(schema, "")

    def decode(self, data: bytes) -> dict[str, Any] | None:
        """Decode a value.

        Returns:
            The columns that occur in the value, by name, for pyarrow.array; None if the text is empty.

        Raises:
            MalformedValue: If the value is malformed.
        """
        reader = JacksonReader(java_text.java_units(java_text.java_decoded(data)), self._options)
        try:
            if reader.next_token() is None:
                return None
            if reader.token is Token.START_OBJECT:
                return self._read_object(reader, self._fields)
            raise ValueError(f"it begins with {reader.token.name}, not with an object" if reader.token else "")
        except _CONVERSION_ERRORS as error:
            raise MalformedValue(None, str(error) or type(error).__name__) from None

    def _read_object(self, reader: JacksonReader, fields: _Fields) -> dict[str, Any]:
        row: dict[str, Any] = {}
        why: str | None = None
        while _advance_unless(reader, Token.END_OBJECT):
            field = fields.get(reader.name or "")
            if field is None:
                reader.skip_children()
                continue
            name, convert = field
            try:
                row[name] = convert(reader)
            except MalformedValue as partial:
                why = why or str(partial)
                row[name] = partial.value
            except _CONVERSION_ERRORS as error:
                why = why or f"{name}: {error}"
                reader.skip_children()
        if why is not None:
            raise MalformedValue(row, why)
        return row

    def _read_array(self, reader: JacksonReader, convert: Converter) -> list[Any]:
        values, why = [], None
        while _advance_unless(reader, Token.END_ARRAY):
            try:
                values.append(convert(reader))
            except MalformedValue as partial:
                why = why or str(partial)
                values.append(partial.value)
        if why is not None:
            raise MalformedValue(values, why)
        return values

    def _read_map(self, reader: JacksonReader, convert: Converter) -> list[tuple[str, Any]]:
        pairs: list[tuple[str, Any]] = []
        incomplete: str | None = None  # why a value of the map is incomplete
        reason: str | None = None  # why a value of the map is malformed, which makes the whole map malformed
        while _advance_unless(reader, Token.END_OBJECT):
            key = java_text.java_characters(reader.name or "")
            try:
                pairs.append((key, convert(reader)))
            except MalformedValue as partial:
                incomplete = incomplete or str(partial)
                pairs.append((key, partial.value))
            except _CONVERSION_ERRORS as error:
                reason = reason or str(error)
                reader.skip_children()
        if reason is not None:
            raise ValueError(reason)
        if incomplete is not None:
            raise MalformedValue(pairs, incomplete)
        return pairs

    def _converters(self, fields: Iterable[pa.Field], path: str) -> _Fields:
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            what = f"column '{path}'" if path else "the schema"
            raise OptionError(f"{what} has two fields with one name: {', '.join(names)}")
        within = f"{path}." if path else ""
        return {
            java_text.java_units(field.name): (field.name, self._converter(field.type, within + field.name))
            for field in fields
        }

    def _converter(self, type_: pa.DataType, path: str) -> Converter:
        if pa.types.is_struct(type_):
            fields = self._converters(type_, path)
            return token_converter(type_, {Token.START_OBJECT: lambda reader: self._read_object(reader, fields)})
        if pa.types.is_map(type_):
            if type_.key_type != pa.string():
                raise OptionError(f"column '{path}': keys of a map in JSON are strings, not {type_.key_type}")
            convert = self._converter(type_.item_type, f"{path}.value")
            return token_converter(type_, {Token.START_OBJECT: lambda reader: self._read_map(reader, convert)})
        if pa.types.is_list(type_):
            convert = self._converter(type_.value_type, f"{path}.element")
            return token_converter(type_, {Token.START_ARRAY: lambda reader: self._read_array(reader, convert)})
        return scalar_converter(type_, self._options, path)


def _advance_unless(reader: JacksonReader, end: Token) -> bool:
    """Advance to the next token; return false at the token `end` and at the end of the text."""
    token = reader.next_token()
    return token is not None and token is not end
