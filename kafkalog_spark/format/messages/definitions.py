"""Kafka's message definitions, and the structs that they describe in one version.

`kafka_messages.jsonl` has one definition per line: those of Apache Kafka's jars (JSON resources of MessageGenerator,
KIP-482; Apache License 2.0) without comments. There are requests, responses, headers, and records of internal topics.
`tests/format/record_messages.py` makes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).with_name("kafka_messages.jsonl")

Definition = Mapping[str, Any]
"""A message, a struct or a field, as the file has it."""


class Head(NamedTuple):
    """How a line of the file begins, and where it is.

    Attributes:
        type: header, request, response, coordinator-key, coordinator-value, metadata or data.
        topic: Topic of a coordinator's key or value.
        position, size: Of the line in the file, in bytes.
    """

    name: str
    api_key: int | None
    type: str
    topic: str | None
    position: int
    size: int


DEFAULT_STRUCT = object()
"""Default of a field whose type is a struct and that is not null: a struct of defaults."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a struct in one version.

    Attributes:
        name: Name of its attribute, in snake_case.
        type: Primitive type, or name of the struct; of the elements where `is_array`.
        is_present: False if the version does not have the field. It then reads as its default.
        is_flexible: True if lengths are compact.
        tag: None if the field is not tagged.
        default: Value of `type` as a number, text, tuple or None; or DEFAULT_STRUCT.
        most: Largest valid number; None if all numbers of the type are valid.
    """

    name: str
    type: str
    is_array: bool
    is_present: bool
    is_nullable: bool
    is_flexible: bool
    tag: int | None
    default: Any
    most: int | None
    struct: Struct | None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A message, or a struct in it, in one version. fields: plain ones in Kafka's order, then tagged ones by tag."""

    name: str
    version: int
    is_flexible: bool
    fields: tuple[Field, ...]

    @property
    def present(self) -> list[Field]:
        return [field for field in self.fields if field.is_present]


class Attribute(NamedTuple):
    """How Python code sees a field: its name, its type, and whether it may be null in any version."""

    name: str
    type: str
    is_nullable: bool


ToAttribute = Callable[[Definition], Attribute]


@cache
def heads() -> tuple[Head, ...]:
    """The beginnings of all lines, in their order."""
    pattern = r'^\{"name":"(\w+)",(?:"apiKey":(\d+),)?"type":"([\w-]+)"(?:,"topic":"(\w+)")?.*$'
    return tuple(
        Head(found[1], int(found[2]) if found[2] else None, found[3], found[4], found.start(), len(found[0]))
        for found in re.finditer(pattern, _FILE.read_text(encoding="ascii"), re.MULTILINE)
    )


def definition(head: Head) -> Definition:
    """Read the line that begins so."""
    with _FILE.open("rb") as file:
        file.seek(head.position)
        found: Definition = json.loads(file.read(head.size))
    return found


def versions(message: Definition) -> range:
    first, _, last = str(message["validVersions"]).partition("-")
    return range(int(first), int(last or first) + 1)


def snake_case(name: str) -> str:
    return re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def plain_attribute(field: Definition) -> Attribute:
    """The field with Kafka's own type."""
    return Attribute(snake_case(field["name"]), field["type"], is_nullable=False)


def struct_of(message: Definition, version: int, to_attribute: ToAttribute = plain_attribute) -> Struct:
    """Return a message in one version."""
    common = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", ())}
    is_flexible = _within(message["flexibleVersions"], version)

    def struct(name: str, fields: list[Definition]) -> Struct:
        ordered = sorted(fields, key=lambda field: field.get("tag", -1))
        return Struct(name, version, is_flexible, tuple(map(resolved, ordered)))

    def resolved(field: Definition) -> Field:
        name, kind, is_nullable = to_attribute(field)
        is_array, kind = kind.startswith("[]"), kind.removeprefix("[]")
        fields = field.get("fields") or common.get(kind)
        tagged = field.get("taggedVersions", "none")
        tag = field["tag"] if _within(tagged, version) else None
        is_nullable = is_nullable or _within(field.get("nullableVersions", "none"), version)
        return Field(
            name, kind, is_array, _within(field.get("versions", tagged), version), is_nullable,
            is_flexible and field.get("flexibleVersions") != "none", tag,
            _default(field, kind, is_array=is_array, is_nullable=is_nullable and (tag is None or fields is None)),
            field.get("most"), None if fields is None else struct(kind, fields),
        )  # fmt: skip

    return struct(message["name"], message["fields"])


def _default(field: Definition, kind: str, *, is_array: bool, is_nullable: bool) -> Any:
    """The stated default; without one, null where it is allowed, otherwise zero or empty.

    Kafka's classes have empty texts where null is allowed. JSON's null makes the default of an array null, but not that
    of a struct, as records show that Kafka wrote (ConsumerGroupMemberMetadataValue).
    """
    stated = field.get("default", "")
    if stated == "null" or (stated is None and is_array):
        return None
    if is_array:
        return ()
    if stated in ("", None):
        is_null = is_nullable or kind == "records"
        return None if is_null else DEFAULT_STRUCT if kind[0].isupper() else _ZEROS.get(kind, 0)
    return stated if kind == "string" else str(stated).lower() == "true" if kind == "bool" else int(str(stated), 0)


_ZEROS = {"string": "", "bytes": b"", "bool": False}


def _within(versions: str, version: int) -> bool:
    """versions: `3+`, `0-4`, `1` or `none`."""
    if versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))
