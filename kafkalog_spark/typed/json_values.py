"""One JSON text to a row by the rules of from_json, in plain Python: what the kernel does not decide is decided here.

Follows Spark's JacksonParser (convertObject, convertArray, convertMap, parseJsonToken) and FailureSafeParser: which
errors cost a field, which the whole value, and what is left of the fields around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.typed.jackson import JacksonReader
from kafkalog_spark.typed.jackson_tokens import JsonError, Token
from kafkalog_spark.typed.java_text import java_characters, java_decoded, java_units
from kafkalog_spark.typed.json_options import JsonOptions
from kafkalog_spark.typed.json_scalars import BadField, Converter, scalar_converter, taking
from kafkalog_spark.typed.json_types import check_types


class Partial(Exception):
    """Something inside is wrong; `value` is what could be read."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


class BadValue(Exception):
    """The text is bad. `row`: what could be read of it, None for nothing."""

    def __init__(self, row: dict[str, Any] | None, why: str) -> None:
        super().__init__(why)
        self.row = row


_Fields = dict[str, tuple[str, Converter]]
"""By their names as Jackson gives them: the names of columns, and what converts their values."""
_WRONG = (BadField, JsonError, ValueError, ArithmeticError)
"""What a converter raises where Spark has an exception that is caught."""


class JsonRows:
    """Decodes texts one by one. `schema`: without the column of the corrupt record."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        check_types(schema)
        self._options = options
        self._fields = self._converters(schema)

    def row(self, data: bytes) -> dict[str, Any] | None:
        """The fields that are there by name, as pyarrow.array takes them; None for a text without a token. Raises
        BadValue."""
        reader = JacksonReader(java_units(java_decoded(data)), self._options.features)
        try:
            if reader.next_token() is None:
                return None
            if reader.token is Token.START_OBJECT:
                return self._object(reader, self._fields)
            raise BadField(f"it begins with {reader.token.name}, not with an object" if reader.token else "")
        except Partial as partial:
            raise BadValue(partial.value, str(partial)) from None
        except _WRONG as error:
            raise BadValue(None, str(error) or type(error).__name__) from None

    # ---- composed types

    def _object(self, reader: JacksonReader, fields: _Fields) -> dict[str, Any]:
        row: dict[str, Any] = {}
        why: str | None = None
        while _until(reader, Token.END_OBJECT):
            field = fields.get(reader.name or "")
            if field is None:
                reader.skip_children()
                continue
            name, convert = field
            try:
                row[name] = convert(reader)
            except Partial as partial:
                why = why or str(partial)
                row[name] = partial.value
            except _WRONG as error:
                why = why or f"{name}: {error}"
                reader.skip_children()
        if why is not None:
            raise Partial(row, why)
        return row

    def _array(self, reader: JacksonReader, convert: Converter) -> list[Any]:
        values, why = [], None
        while _until(reader, Token.END_ARRAY):
            try:
                values.append(convert(reader))
            except Partial as partial:
                why = why or str(partial)
                values.append(partial.value)
        if why is not None:
            raise Partial(values, why)
        return values

    def _map(self, reader: JacksonReader, convert: Converter) -> list[tuple[str, Any]]:
        pairs: list[tuple[str, Any]] = []
        partly: str | None = None
        bad: str | None = None
        while _until(reader, Token.END_OBJECT):
            key = java_characters(reader.name or "")
            try:
                pairs.append((key, convert(reader)))
            except Partial as partial:
                partly = partly or str(partial)
                pairs.append((key, partial.value))
            except _WRONG as error:
                bad = bad or str(error)
                reader.skip_children()
        if bad is not None:
            raise BadField(bad)
        if partly is not None:
            raise Partial(pairs, partly)
        return pairs

    # ---- converters

    def _converters(self, fields: Iterable[pa.Field]) -> _Fields:
        return {java_units(field.name): (field.name, self._converter(field.type)) for field in fields}

    def _converter(self, kind: pa.DataType) -> Converter:
        if pa.types.is_struct(kind):
            fields = self._converters(kind)
            return taking(kind, {Token.START_OBJECT: lambda reader: self._object(reader, fields)})
        if pa.types.is_map(kind):
            convert = self._converter(kind.item_type)
            return taking(kind, {Token.START_OBJECT: lambda reader: self._map(reader, convert)})
        if pa.types.is_list(kind):
            convert = self._converter(kind.value_type)
            return taking(kind, {Token.START_ARRAY: lambda reader: self._array(reader, convert)})
        return scalar_converter(kind, self._options)


def _until(reader: JacksonReader, end: Token) -> bool:
    token = reader.next_token()
    return token is not None and token is not end
