"""An Avro schema as values: parsed by the rules of Java's `Schema.Parser` (Avro 1.12, `setValidateDefaults(false)`).

Logical types that are not valid where they stand (a precision larger than the bytes of a fixed hold, say) count for
nothing, as in Java.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeGuard

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.schema_text import recursion_bounded

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")


class _NoDefault(Enum):
    """Has one value, which is itself again in another process."""

    NO_DEFAULT = 0


NO_DEFAULT = _NoDefault.NO_DEFAULT
"""The default of a field that has none; None is the default null."""
_NAME = re.compile(r"[^\W\d]\w*")
_LOGICAL_OF = {
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
_DEEPEST = 200
_LARGEST = 2**31 - 1
"""Of whole numbers in a schema, which are ints in Java."""


@dataclass(eq=False)
class AvroType:
    """One type. `logical`: its name, and for "decimal" `precision` and `scale`. Named types are one object wherever
    they are named, so recursive ones form circles."""

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
        """What an array or a map holds."""
        assert self.items is not None
        return self.items

    @property
    def called(self) -> str:
        """Its name in sentences, and in unions: "int", "org.example.Order"."""
        return self.name or self.kind

    @property
    def short_name(self) -> str:
        return self.called.rpartition(".")[2]

    def without_null(self) -> tuple[AvroType, ...]:
        """A union's branches, but null."""
        return tuple(branch for branch in self.branches if branch.kind != "null")

    def has_null(self) -> bool:
        return any(branch.kind == "null" for branch in self.branches)


@dataclass(eq=False)
class AvroField:
    """One field of a record."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


def parse_schema(text: str | Any, references: Mapping[str, AvroType] | None = None) -> AvroType:
    """The type that a schema's JSON text says, or the value parsed from it.

    references: types of other schemas that this one may name, by full name. Raises OptionError, with what is wrong and
    where, for anything that Java's parser refuses.
    """
    with recursion_bounded("an Avro schema"):
        return _parsed(text, references or {})


def _parsed(text: str | Any, references: Mapping[str, AvroType]) -> AvroType:
    if isinstance(text, str):
        try:
            text = json.loads(text) if text.strip()[:1] in ('"', "{", "[") else text.strip()
        except ValueError as error:
            raise OptionError(f"an Avro schema is not JSON: {error}") from error
    return _Parser(dict(references)).type_of(text, "", "the schema", 0)


class _Parser:
    def __init__(self, known: dict[str, AvroType]) -> None:
        self.known = known

    def type_of(self, json_: Any, space: str, where: str, depth: int) -> AvroType:
        if depth > _DEEPEST:
            raise OptionError(f"an Avro schema is nested more than {_DEEPEST} times ({where[:200]})")
        if isinstance(json_, str):
            return self._named(json_, space, where)
        if isinstance(json_, list):
            return self._union([self.type_of(one, space, where, depth + 1) for one in json_], where)
        if not isinstance(json_, dict) or "type" not in json_:
            raise OptionError(f"{where} of an Avro schema is {_shown(json_)}: expected a type's name, object or union")
        kind = json_["type"]
        if isinstance(kind, str) and kind in (*NAMED, "error"):
            return self._definition("record" if kind == "error" else kind, json_, space, where, depth)
        if kind == "array" or kind == "map":
            of = "items" if kind == "array" else "values"
            if of not in json_:
                raise OptionError(f"{where} of an Avro schema is {_an(kind)} without `{of}`")
            inner = self.type_of(json_[of], space, f"{where}.{of}", depth + 1)
            return AvroType(kind, items=inner, properties=json_)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _with_logical(AvroType(kind, properties=json_), json_)
        return self.type_of(kind, space, where, depth + 1)

    def _named(self, name: str, space: str, where: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in [name] if "." in name else [f"{space}.{name}" if space else name, name]:
            if full in self.known:
                return self.known[full]
        raise OptionError(
            f"{where} of an Avro schema names the type {_shown(name)}, which is defined neither before it nor in a "
            f"schema that it refers to (defined: {', '.join(sorted(self.known)[:20]) or 'none'})"
        )

    def _union(self, branches: list[AvroType], where: str) -> AvroType:
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise OptionError(f"{where} of an Avro schema is a union with a union in it")
            if branch.called in seen:
                raise OptionError(f"{where} of an Avro schema is a union that has {branch.called} twice")
            seen.add(branch.called)
        return AvroType("union", branches=tuple(branches))

    def _definition(self, kind: str, json_: Mapping[str, Any], space: str, where: str, depth: int) -> AvroType:
        name = _full_name(json_, space, where)
        if name in self.known:
            raise OptionError(f"an Avro schema defines {name} twice (the second time: {where})")
        own_space = name.rpartition(".")[0]
        aliases = tuple(a if "." in a or not own_space else f"{own_space}.{a}" for a in _aliases(json_, name))
        found = AvroType(kind, name=name, aliases=aliases, properties=json_)
        self.known[name] = found
        if kind == "fixed":
            size = json_.get("size")
            if not _is_int(size) or size < 0:
                raise OptionError(f"{name} of an Avro schema is a fixed with size {_shown(size)}: expected bytes")
            found.size = size
            _with_logical(found, json_)
        elif kind == "enum":
            symbols = json_.get("symbols")
            if not isinstance(symbols, list) or not all(_is_name(one) for one in symbols):
                raise OptionError(f"{name} of an Avro schema is an enum with symbols {_shown(symbols)}: expected names")
            if len(set(symbols)) != len(symbols):
                raise OptionError(f"{name} of an Avro schema is an enum that has a symbol twice")
            found.symbols = tuple(symbols)
            default = json_.get("default")
            if isinstance(default, str):
                if default not in symbols:
                    raise OptionError(
                        f"{name} of an Avro schema has the default {_shown(default)}, which it does not have"
                    )
                found.default_symbol = default
        else:
            found.fields = tuple(self._fields(json_, name, own_space, depth))
        return found

    def _fields(self, json_: Mapping[str, Any], name: str, space: str, depth: int) -> list[AvroField]:
        listed = json_.get("fields")
        if not isinstance(listed, list):
            raise OptionError(f"{name} of an Avro schema is a record with fields {_shown(listed)}: expected a list")
        fields: dict[str, AvroField] = {}
        for one in listed:
            if not isinstance(one, dict) or not _is_name(one.get("name")) or "type" not in one:
                raise OptionError(f"{name} of an Avro schema has a field {_shown(one)}: expected a name and a type")
            if one["name"] in fields:
                raise OptionError(f"{name} of an Avro schema has the field {one['name']} twice")
            where = f"{name}.{one['name']}"
            type_ = self.type_of(one["type"], space, where, depth + 1)
            fields[one["name"]] = AvroField(one["name"], type_, one.get("default", NO_DEFAULT), _aliases(one, where))
        return [*fields.values()]


def _full_name(json_: Mapping[str, Any], space: str, where: str) -> str:
    name, own = json_.get("name"), json_.get("namespace")
    if isinstance(name, str) and "." not in name:
        own = own if isinstance(own, str) else space
        name = f"{own}.{name}" if own else name
    if not _is_full_name(name):
        raise OptionError(f"{where} of an Avro schema is {_an(json_['type'])} with the name {_shown(name)}")
    return name


def _aliases(json_: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found = json_.get("aliases", [])
    if not isinstance(found, list) or not all(map(_is_full_name, found)):
        raise OptionError(f"{where} of an Avro schema has the aliases {_shown(found)}: expected a list of names")
    return tuple(found)


def _is_full_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and all(map(_is_name, value.split(".")))


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _with_logical(found: AvroType, json_: Mapping[str, Any]) -> AvroType:
    """Note the logical type, where Java's `LogicalTypes.fromSchemaIgnoreInvalid` does."""
    logical = json_.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        precision, scale = json_.get("precision"), json_.get("scale", 0)
        if not _is_int(precision) or not _is_int(scale) or not 0 <= scale <= precision or precision < 1:
            return found
        if found.kind == "fixed" and (not found.size or precision > math.floor((8 * found.size - 1) * math.log10(2))):
            return found
        found.logical, found.precision, found.scale = "decimal", precision, scale
    elif _LOGICAL_OF.get(str(logical)) == found.kind or (logical == "custom-decimal" and found.kind == "long"):
        found.logical = logical
    return found


def _an(kind: Any) -> str:
    return f"an {kind}" if str(kind)[:1] in "aeiou" else f"a {kind}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
