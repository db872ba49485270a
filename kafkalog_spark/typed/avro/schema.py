"""Avro schemas and their parser, which has the rules of Java's `Schema.Parser` (Avro 1.12).

Defaults (`setValidateDefaults(false)`) and namespaces are not validated. Invalid logical types are ignored, such as a
decimal whose precision is too large for its fixed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeGuard

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.schema_files import schema_text
from kafkalog_spark.typed.schema_limits import recursion_bounded

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")
_NAME = re.compile(r"[^\W\d]\w*")
_LOGICAL_KINDS = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"?|/\*(?:.*?\*/|.*)|//[^\n]*', re.DOTALL)
"""A string or comment without an end extends to the end of the text, so that matching takes linear time."""
_MAX_DEPTH = 200
_MAX_INT = 2**31 - 1  # the numbers of a schema are ints in Java


class _NoDefault(Enum):
    """Type of `NO_DEFAULT`. Unlike an `object()`, a member of an enum keeps its identity when it is unpickled."""

    NO_DEFAULT = 0


NO_DEFAULT = _NoDefault.NO_DEFAULT  # `default` of a field without a default; None would be the default null


@dataclass(eq=False)
class AvroType:
    """An Avro type. All references to a named type are the same object, so recursive types form cycles.

    Attributes:
        kind: Primitive type, "record", "enum", "fixed", "array", "map" or "union".
        logical: Name of the logical type.
        precision: Precision of the logical type decimal.
        scale: Scale of the logical type decimal.
        name: Full name of a named type.
        aliases: Full names that are aliases of the type.
        fields: Fields of a record.
        symbols: Symbols of an enum.
        default_symbol: Default of an enum.
        size: Number of bytes of a fixed.
        items: Type of the elements of an array or the values of a map.
        branches: Branches of a union.
        properties: The JSON object that defines the type.
    """

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def element(self) -> AvroType:
        """Type of the elements of an array or the values of a map."""
        assert self.items is not None
        return self.items

    @property
    def parts(self) -> tuple[AvroType, ...]:
        """Types that this type refers to directly."""
        return (*self.branches, *(field.type for field in self.fields), *([self.items] if self.items else []))

    @property
    def type_name(self) -> str:
        """Name in messages and unions, such as "int" or "org.example.Order"."""
        return self.name or self.kind

    @property
    def short_name(self) -> str:
        return self.type_name.rpartition(".")[2]

    def without_null(self) -> tuple[AvroType, ...]:
        return tuple(branch for branch in self.branches if branch.kind != "null")

    def has_null(self) -> bool:
        return any(branch.kind == "null" for branch in self.branches)


@dataclass(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


def parse_schema(text: str | Any, references: Mapping[str, AvroType] | None = None) -> AvroType:
    """Parse an Avro schema.

    Args:
        text: JSON text of the schema, the name of a primitive type, or parsed JSON.
        references: Types of other schemas that the schema may refer to, by full name.

    Raises:
        OptionError: If Java's parser would refuse the schema. The message says what is wrong and where.
    """
    with recursion_bounded("an Avro schema"):
        if isinstance(text, str):
            text = _without_comments(text).strip()
            try:
                text = json.loads(text) if text[:1] in ('"', "{", "[") else text
            except ValueError as error:
                raise OptionError(f"an Avro schema is not JSON: {error}") from error
        return _Parser(dict(references or {})).type_of(text, "", "the schema", 0)


def schema_option_text(option: str, value: str) -> str:
    """Return the text of the schema that an option contains, or of the file that it names, without comments.

    A text that begins with a comment would be mistaken for the name of a file if it were passed to this function again.

    Args:
        option: Name of the option, for errors.
        value: Value of the option: the schema or the path of a local file.

    Raises:
        OptionError: If the file cannot be read.
    """
    return _without_comments(schema_text(option, value)).strip()


def _without_comments(text: str) -> str:
    """Replace each comment by a space. Java's parser allows comments (`JsonParser.Feature.ALLOW_COMMENTS`)."""

    def replacement(match: re.Match[str]) -> str:
        is_comment = match[0].startswith("//") or (match[0].startswith("/*") and match[0].endswith("*/"))
        return " " if is_comment else match[0]

    return _STRING_OR_COMMENT.sub(replacement, text)


class _Parser:
    """Parser of one schema. `types` are the named types that are defined so far, by full name."""

    def __init__(self, types: dict[str, AvroType]) -> None:
        self.types = types

    def type_of(self, json_: Any, namespace: str, path: str, depth: int) -> AvroType:
        if depth > _MAX_DEPTH:
            raise OptionError(f"an Avro schema is nested more than {_MAX_DEPTH} levels deep ({path[:200]})")
        if isinstance(json_, str):
            return self._named(json_, namespace, path)
        if isinstance(json_, list):
            return self._union([self.type_of(branch, namespace, path, depth + 1) for branch in json_], path)
        if not isinstance(json_, dict) or "type" not in json_:
            raise OptionError(
                f"{path} of an Avro schema is {_shortened(json_)}: expected a type's name, object or union"
            )
        kind = json_["type"]
        if isinstance(kind, str) and kind in (*NAMED, "error"):
            return self._definition("record" if kind == "error" else kind, json_, namespace, path, depth)
        if kind == "array" or kind == "map":
            element_key = "items" if kind == "array" else "values"
            if element_key not in json_:
                raise OptionError(f"{path} of an Avro schema is {_with_article(kind)} without `{element_key}`")
            element = self.type_of(json_[element_key], namespace, f"{path}.{element_key}", depth + 1)
            return AvroType(kind, items=element, properties=json_)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _with_logical(AvroType(kind, properties=json_), json_)
        return self.type_of(kind, namespace, path, depth + 1)

    def _named(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full_names = [name] if "." in name or not namespace else [f"{namespace}.{name}", name]
        for full_name in full_names:
            if full_name in self.types:
                return self.types[full_name]
        raise OptionError(
            f"{path} of an Avro schema names the type {_shortened(name)}, which is defined neither before it nor in a "
            f"schema that it refers to (defined: {', '.join(sorted(self.types)[:20]) or 'none'})"
        )

    def _union(self, branches: list[AvroType], path: str) -> AvroType:
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise OptionError(f"{path} of an Avro schema is a union that contains a union")
            if branch.type_name in seen:
                raise OptionError(f"{path} of an Avro schema is a union that has {branch.type_name} twice")
            seen.add(branch.type_name)
        return AvroType("union", branches=tuple(branches))

    def _definition(self, kind: str, json_: Mapping[str, Any], namespace: str, path: str, depth: int) -> AvroType:
        name = _full_name(json_, namespace, path)
        if name in self.types:
            raise OptionError(f"an Avro schema defines {name} twice (the second time: {path})")
        own_namespace = name.rpartition(".")[0]
        aliases = tuple(
            alias if "." in alias or not own_namespace else f"{own_namespace}.{alias}"
            for alias in _aliases(json_, name, _is_full_name)
        )
        defined = AvroType(kind, name=name, aliases=aliases, properties=json_)
        self.types[name] = defined
        if kind == "fixed":
            size = json_.get("size")
            if not _is_int(size) or size < 0:
                raise OptionError(f"{name} of an Avro schema is a fixed with size {_shortened(size)}: expected bytes")
            defined.size = size
            _with_logical(defined, json_)
        elif kind == "enum":
            symbols = json_.get("symbols")
            if not isinstance(symbols, list) or not all(map(_is_name, symbols)):
                raise OptionError(
                    f"{name} of an Avro schema is an enum with symbols {_shortened(symbols)}: expected names"
                )
            if len(set(symbols)) != len(symbols):
                raise OptionError(f"{name} of an Avro schema is an enum that has a symbol twice")
            defined.symbols = tuple(symbols)
            default = json_.get("default")
            if isinstance(default, str):
                if default not in symbols:
                    raise OptionError(f"{name} of an Avro schema is an enum without its default {_shortened(default)}")
                defined.default_symbol = default
        else:
            defined.fields = tuple(self._fields(json_, name, own_namespace, depth))
        return defined

    def _fields(self, json_: Mapping[str, Any], name: str, namespace: str, depth: int) -> list[AvroField]:
        listed = json_.get("fields")
        if not isinstance(listed, list):
            raise OptionError(f"{name} of an Avro schema is a record with fields {_shortened(listed)}: expected a list")
        fields: dict[str, AvroField] = {}
        for definition in listed:
            if not isinstance(definition, dict) or not _is_name(definition.get("name")) or "type" not in definition:
                raise OptionError(
                    f"{name} of an Avro schema has a field {_shortened(definition)}: expected a name and a type"
                )
            if definition["name"] in fields:
                raise OptionError(f"{name} of an Avro schema has the field {definition['name']} twice")
            path = f"{name}.{definition['name']}"
            type_ = self.type_of(definition["type"], namespace, path, depth + 1)
            fields[definition["name"]] = AvroField(
                definition["name"], type_, definition.get("default", NO_DEFAULT), _aliases(definition, path, _is_text)
            )
        return [*fields.values()]


def _full_name(json_: Mapping[str, Any], namespace: str, path: str) -> str:
    name, own_namespace = json_.get("name"), json_.get("namespace")
    if isinstance(name, str) and "." not in name:
        own_namespace = own_namespace if isinstance(own_namespace, str) else namespace
        name = f"{own_namespace}.{name}" if own_namespace else name
    if not _is_full_name(name):
        raise OptionError(
            f"{path} of an Avro schema is {_with_article(json_['type'])} with the name {_shortened(name)}"
        )
    return name


def _aliases(json_: Mapping[str, Any], path: str, is_valid: Callable[[Any], bool]) -> tuple[str, ...]:
    aliases = json_.get("aliases", [])
    if not isinstance(aliases, list) or not all(map(is_valid, aliases)):
        raise OptionError(f"{path} of an Avro schema has the aliases {_shortened(aliases)}: expected a list of names")
    return tuple(aliases)


def _with_logical(avro: AvroType, json_: Mapping[str, Any]) -> AvroType:
    """Set the logical type of `avro` if it is valid (Java's `LogicalTypes.fromSchemaIgnoreInvalid`)."""
    logical = json_.get("logicalType")
    if logical == "decimal" and avro.kind in ("bytes", "fixed"):
        precision, scale = json_.get("precision"), json_.get("scale", 0)
        if not _is_int(precision) or not _is_int(scale) or not 0 <= scale <= precision or precision < 1:
            return avro
        if avro.kind == "fixed" and (not avro.size or precision > math.floor((8 * avro.size - 1) * math.log10(2))):
            return avro
        avro.logical, avro.precision, avro.scale = "decimal", precision, scale
    elif _LOGICAL_KINDS.get(str(logical)) == avro.kind or (logical == "custom-decimal" and avro.kind == "long"):
        avro.logical = logical
    return avro


def _is_full_name(value: Any) -> TypeGuard[str]:
    """Return whether a value is a full name: the last part is a valid name; the namespace before it may be any text.

    Registries and Java's parser before Avro 1.12.1 do not check namespaces, and Debezium derives them from the name of
    a server.
    """
    return isinstance(value, str) and not value.startswith(".") and _is_name(value.rpartition(".")[2])


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INT


def _with_article(kind: Any) -> str:
    return f"an {kind}" if str(kind)[:1] in "aeiou" else f"a {kind}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
