"""Fallback of the JSON kernel: a JSON text to a row by the rules of from_json, in plain Python.

Follows Spark's JacksonParser (convertObject, convertArray, convertMap, parseJsonToken) and FailureSafeParser: which
errors cost a field, which the whole value, and what is left of the fields around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.columns import java_text
from kafkalog_spark.typed.json.jackson import JacksonReader, JsonError, Token
from kafkalog_spark.typed.json.options import JsonOptions
from kafkalog_spark.typed.json.scalar_converters import Converter, scalar_converter, taking


class BadValue(Exception):
    """A text, or an object or array in it, is bad. value: what could be read of it, None for nothing."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


_Fields = dict[str, tuple[str, Converter]]
"""By their names as Jackson gives them: the names of columns, and what converts their values."""
_WRONG = (JsonError, ValueError, ArithmeticError)
"""Exceptions of converters where Spark catches its own."""


class JsonRows:
    """Decodes texts one by one. `schema`: without the column of the corrupt record."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        """Raises OptionError for a type that JSON is not decoded to here, and for two fields of one name."""
        self._options = options
        self._fields = self._converters(schema, "")

    def row(self, data: bytes) -> dict[str, Any] | None:
        """Fields that are there, by name, as pyarrow.array takes them; None without a token. Raises BadValue."""
        reader = JacksonReader(java_text.java_units(java_text.java_decoded(data)), self._options)
        try:
            if reader.next_token() is None:
                return None
            if reader.token is Token.START_OBJECT:
                return self._object(reader, self._fields)
            raise ValueError(f"it begins with {reader.token.name}, not with an object" if reader.token else "")
        except _WRONG as error:
            raise BadValue(None, str(error) or type(error).__name__) from None

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
            except BadValue as partial:
                why = why or str(partial)
                row[name] = partial.value
            except _WRONG as error:
                why = why or f"{name}: {error}"
                reader.skip_children()
        if why is not None:
            raise BadValue(row, why)
        return row

    def _array(self, reader: JacksonReader, convert: Converter) -> list[Any]:
        values, why = [], None
        while _until(reader, Token.END_ARRAY):
            try:
                values.append(convert(reader))
            except BadValue as partial:
                why = why or str(partial)
                values.append(partial.value)
        if why is not None:
            raise BadValue(values, why)
        return values

    def _map(self, reader: JacksonReader, convert: Converter) -> list[tuple[str, Any]]:
        pairs: list[tuple[str, Any]] = []
        partly: str | None = None
        bad: str | None = None
        while _until(reader, Token.END_OBJECT):
            key = java_text.java_characters(reader.name or "")
            try:
                pairs.append((key, convert(reader)))
            except BadValue as partial:
                partly = partly or str(partial)
                pairs.append((key, partial.value))
            except _WRONG as error:
                bad = bad or str(error)
                reader.skip_children()
        if bad is not None:
            raise ValueError(bad)
        if partly is not None:
            raise BadValue(pairs, partly)
        return pairs

    def _converters(self, fields: Iterable[pa.Field], path: str) -> _Fields:
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            what = f"column '{path}'" if path else "the schema"
            raise OptionError(f"{what} has two fields of one name: {', '.join(names)}")
        within = f"{path}." if path else ""
        return {
            java_text.java_units(field.name): (field.name, self._converter(field.type, within + field.name))
            for field in fields
        }

    def _converter(self, kind: pa.DataType, path: str) -> Converter:
        if pa.types.is_struct(kind):
            fields = self._converters(kind, path)
            return taking(kind, {Token.START_OBJECT: lambda reader: self._object(reader, fields)})
        if pa.types.is_map(kind):
            if kind.key_type != pa.string():
                raise OptionError(f"column '{path}': keys of a map in JSON are strings, not {kind.key_type}")
            convert = self._converter(kind.item_type, f"{path}.value")
            return taking(kind, {Token.START_OBJECT: lambda reader: self._map(reader, convert)})
        if pa.types.is_list(kind):
            convert = self._converter(kind.value_type, f"{path}.element")
            return taking(kind, {Token.START_ARRAY: lambda reader: self._array(reader, convert)})
        return scalar_converter(kind, self._options, path)


def _until(reader: JacksonReader, end: Token) -> bool:
    token = reader.next_token()
    return token is not None and token is not end
