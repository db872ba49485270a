"""Schemas as Spark writes them in DDL, `id bigint, tags array<string>`, to Arrow types and back: Spark's own parser is
in the JVM, which its Python workers do not have."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from kafkalog_spark.errors import OptionError

_SIMPLE: dict[str, pa.DataType] = {
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
_OTHER_NAMES = {
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
_DEPTH = 60


class _Reader:
    """The tokens of a text, one after the other. A token is (kind, text). Kinds: "word", "sign", "name" for a name in
    backquotes, "text" for a literal with its quotes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"'{text[at : at + 20].strip()}' is not understood")
            quoted, word, sign, literal = found.groups()
            if quoted is not None:
                self.tokens.append(("name", quoted.replace("``", "`")))
            elif literal is not None:
                self.tokens.append(("text", literal))
            else:
                self.tokens.append(("word", word) if word is not None else ("sign", sign))
            at = found.end()
        self.at = 0

    def error(self, what: str) -> OptionError:
        return OptionError(f"schema '{self.text[:200]}': {what}", hint="write it as `id bigint, tags array<string>`")

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def sign(self, sign: str) -> bool:
        """True if the next token is that sign, which is then taken."""
        if self.peek() == ("sign", sign):
            self.at += 1
            return True
        return False

    def word(self, word: str) -> bool:
        """Take the next token if it is that word, in any case. True if it was."""
        kind, text = self.peek()
        if kind == "word" and text.lower() == word:
            self.at += 1
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.sign(sign):
            raise self.error(f"expected '{sign}', got '{self.peek()[1]}'")


def schema_of_ddl(text: str) -> pa.Schema:
    """The Arrow schema of a DDL text; `struct<...>` around it is allowed. Raises OptionError."""
    reader = _Reader(text)
    if [(kind, token.lower()) for kind, token in reader.tokens[:2]] == [("word", "struct"), ("sign", "<")]:
        kind = _type(reader, 0)
        fields = list(kind)
    else:
        fields = _fields(reader, 0, end=None)
    if reader.peek()[0] != "end":
        raise reader.error(f"'{reader.peek()[1]}' is left over")
    if not fields:
        raise reader.error("it names no column")
    return pa.schema(fields)


def _fields(reader: _Reader, depth: int, end: str | None) -> list[pa.Field]:
    fields: list[pa.Field] = []
    while True:
        if end is not None and reader.sign(end):
            return fields
        kind, name = reader.take()
        if kind not in ("word", "name"):
            raise reader.error(f"expected a column's name, got '{name}'")
        reader.sign(":")
        fields.append(pa.field(name, _type(reader, depth)))
        if reader.word("not") and not reader.word("null"):
            raise reader.error("expected NULL after NOT")
        if reader.word("comment") and reader.take()[0] != "text":
            raise reader.error("COMMENT takes a text in quotes")
        if not reader.sign(","):
            if end is not None:
                reader.need(end)
            return fields


def _type(reader: _Reader, depth: int) -> pa.DataType:
    if depth > _DEPTH:
        raise reader.error(f"it is nested deeper than {_DEPTH}")
    kind, word = reader.take()
    name = word.lower()
    name = _OTHER_NAMES.get(name, name)
    if kind != "word":
        raise reader.error(f"expected a type, got '{word}'")
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name == "decimal":
        return _decimal(reader)
    if name not in ("array", "map", "struct"):
        raise reader.error(f"there is no type '{word}' here")
    reader.need("<")
    if name == "struct":
        return pa.struct(_fields(reader, depth + 1, end=">"))
    parts = [_type(reader, depth + 1)]
    if name == "map":
        reader.need(",")
        parts.append(_type(reader, depth + 1))
    reader.need(">")
    return pa.map_(*parts) if name == "map" else pa.list_(*parts)


def _decimal(reader: _Reader) -> pa.DataType:
    precision, scale = 10, 0
    if reader.sign("("):
        numbers = [reader.take()[1]]
        if reader.sign(","):
            numbers.append(reader.take()[1])
        reader.need(")")
        if not all(number.isdecimal() for number in numbers):
            raise reader.error("decimal takes two numbers")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    if not 0 < precision <= 38 or scale > precision:
        raise reader.error(f"there is no decimal({precision},{scale})")
    return pa.decimal128(precision, scale)


def ddl_of_schema(schema: pa.Schema) -> str:
    """The DDL of columns, names in backquotes where they need them."""
    return ", ".join(f"{_name(field.name)} {ddl_of_type(field.type)}" for field in schema)


def ddl_of_type(kind: pa.DataType) -> str:
    """A type as Spark writes it. Raises OptionError for one that Spark has no name for."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_name(field.name)}: {ddl_of_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of_type(kind.key_type)}, {ddl_of_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    for name, simple in _SIMPLE.items():
        if simple == kind:
            return name
    raise OptionError(f"Spark has no name for the Arrow type {kind}")


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with other types in the place of those that hold no others; keys of maps stay."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, leaf)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(with_leaves(kind.item_type, leaf)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, leaf)))
    return leaf(kind)
