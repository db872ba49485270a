"""Converts Spark's DDL schemas (`id bigint, tags array<string>`) to Arrow schemas and back.

Spark's own parser runs in the JVM, which Python workers cannot call.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from kafkalog_spark.errors import OptionError

_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_TOKEN = re.compile(
    r"""\s*(?:`((?:[^`]|``)*)`|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""", re.UNICODE | re.DOTALL
)
_MAX_DEPTH = 60


def schema_of_ddl(text: str) -> pa.Schema:
    """Return the Arrow schema of a DDL text.

    Args:
        text: Columns separated by commas, optionally enclosed in `struct<...>`.

    Raises:
        OptionError: If the text is not valid DDL, has no columns, or uses a type that is not supported.
    """
    tokens = _Tokens(text)
    if [(kind, token.lower()) for kind, token in tokens.tokens[:2]] == [("word", "struct"), ("sign", "<")]:
        fields = list(_parse_type(tokens, 0))
    else:
        fields = _parse_fields(tokens, 0, end=None)
    if tokens.peek()[0] != "end":
        raise tokens.error(f"unexpected '{tokens.peek()[1]}'")
    if not fields:
        raise tokens.error("no columns")
    return pa.schema(fields)


def ddl_of_schema(schema: pa.Schema) -> str:
    """Return the DDL of a schema. Names that are not plain identifiers are enclosed in backquotes."""
    return ", ".join(f"{_quote_name(field.name)} {ddl_of_type(field.type)}" for field in schema)


def ddl_of_type(type_: pa.DataType) -> str:
    """Return Spark's DDL for an Arrow type. Raises OptionError for a type that Spark does not have."""
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{_quote_name(field.name)}: {ddl_of_type(field.type)}' for field in type_)}>"
    if pa.types.is_map(type_):
        return f"map<{ddl_of_type(type_.key_type)}, {ddl_of_type(type_.item_type)}>"
    if pa.types.is_list(type_):
        return f"array<{ddl_of_type(type_.value_type)}>"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    for name, simple in _SIMPLE_TYPES.items():
        if simple == type_:
            return name
    raise OptionError(f"Spark has no type for the Arrow type {type_}")


def map_leaves(type_: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which `convert` is applied to every type without parts, except keys of maps."""
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(map_leaves(field.type, convert)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(map_leaves(type_.item_type, convert)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(map_leaves(type_.value_type, convert)))
    return convert(type_)


class _Tokens:
    """Tokens of a DDL text, consumed from left to right.

    A token is (kind, text). The kinds are "word", "sign", "name" for a name in backquotes, "text" for a string literal
    including its quotes, and "end" after the last token.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.next_index = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"'{text[position : position + 20].strip()}' is not a token of a schema")
            quoted, word, sign, literal = match.groups()
            if quoted is not None:
                self.tokens.append(("name", quoted.replace("``", "`")))
            elif literal is not None:
                self.tokens.append(("text", literal))
            else:
                self.tokens.append(("word", word) if word is not None else ("sign", sign))
            position = match.end()

    def error(self, message: str) -> OptionError:
        """Return an error about the text. message: what is wrong with it."""
        return OptionError(f"schema '{self.text[:200]}': {message}", hint="write it as `id bigint, tags array<string>`")

    def peek(self) -> tuple[str, str]:
        """Return the next token without consuming it."""
        return self.tokens[self.next_index] if self.next_index < len(self.tokens) else ("end", "")

    def next(self) -> tuple[str, str]:
        """Consume and return the next token."""
        token = self.peek()
        self.next_index += 1
        return token

    def accept(self, sign: str) -> bool:
        """Consume the next token if it is this sign; return whether it was."""
        if self.peek() == ("sign", sign):
            self.next_index += 1
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Consume the next token if it is this word, in any case; return whether it was."""
        kind, text = self.peek()
        if kind == "word" and text.lower() == word:
            self.next_index += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        """Consume the next token, which must be this sign. Raises OptionError."""
        if not self.accept(sign):
            raise self.error(f"expected '{sign}', got '{self.peek()[1]}'")


def _parse_fields(tokens: _Tokens, depth: int, end: str | None) -> list[pa.Field]:
    """Consume columns and the sign `end` after them; None for the end of the text."""
    fields: list[pa.Field] = []
    while True:
        if end is not None and tokens.accept(end):
            return fields
        kind, name = tokens.next()
        if kind not in ("word", "name"):
            raise tokens.error(f"expected the name of a column, got '{name}'")
        tokens.accept(":")
        fields.append(pa.field(name, _parse_type(tokens, depth)))
        if tokens.accept_word("not") and not tokens.accept_word("null"):
            raise tokens.error("expected NULL after NOT")
        if tokens.accept_word("comment") and tokens.next()[0] != "text":
            raise tokens.error("COMMENT must be followed by a text in quotes")
        if not tokens.accept(","):
            if end is not None:
                tokens.expect(end)
            return fields


def _parse_type(tokens: _Tokens, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise tokens.error(f"nested deeper than {_MAX_DEPTH} levels")
    kind, word = tokens.next()
    name = word.lower()
    name = _SYNONYMS.get(name, name)
    if kind != "word":
        raise tokens.error(f"expected a type, got '{word}'")
    if name in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[name]
    if name == "decimal":
        return _parse_decimal(tokens)
    if name not in ("array", "map", "struct"):
        raise tokens.error(f"unsupported type '{word}'")
    tokens.expect("<")
    if name == "struct":
        return pa.struct(_parse_fields(tokens, depth + 1, end=">"))
    parts = [_parse_type(tokens, depth + 1)]
    if name == "map":
        tokens.expect(",")
        parts.append(_parse_type(tokens, depth + 1))
    tokens.expect(">")
    return pa.map_(*parts) if name == "map" else pa.list_(*parts)


def _parse_decimal(tokens: _Tokens) -> pa.DataType:
    precision, scale = 10, 0
    if tokens.accept("("):
        numbers = [tokens.next()[1]]
        if tokens.accept(","):
            numbers.append(tokens.next()[1])
        tokens.expect(")")
        if not all(number.isdecimal() for number in numbers):
            raise tokens.error("decimal takes a precision and a scale")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    if not 0 < precision <= 38 or scale > precision:
        raise tokens.error(f"invalid decimal({precision},{scale})")
    return pa.decimal128(precision, scale)


def _quote_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"
