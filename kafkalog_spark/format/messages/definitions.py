"""Kafka's message definitions, and their resolution to the structs of one version.

`kafka_messages.jsonl` has one definition per line, without comments. They come from the jars of Apache Kafka (JSON
resources of MessageGenerator, KIP-482; Apache License 2.0): requests, responses, headers and records of internal
topics. `tests/format/record_messages.py` makes the file. Definitions of messages that Kafka does not have belong in
another `.jsonl` file beside it, in the same form.

Two properties of fields are not in Kafka's files: `nullableVersions` of the topic ID in OffsetCommitValue, and
`maxValue`, the largest valid number of a state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent
_ZEROS = {"string": "", "bytes": b"", "bool": False}  # of the other primitive types: 0

Definition = Mapping[str, Any]
"""JSON object of a message, a struct or a field."""


class DefinitionLocation(NamedTuple):
    """Location of a definition. A reader seeks to one definition instead of parsing the whole file.

    Attributes:
        file: File of the definition.
        name: Name of the message, such as FetchRequest.
        api_key: API key of a request or response, or number of a record type; None for other messages.
        type: header, request, response, coordinator-key, coordinator-value, metadata or data.
        topic: Topic of a coordinator's key or value; None for other messages.
        position: First byte of the line in the file.
        size: Bytes of the line.
    """

    file: Path
    name: str
    api_key: int | None
    type: str
    topic: str | None
    position: int
    size: int


DEFAULT_STRUCT = object()
"""Marks the default of a struct field that must not be null: a struct whose fields have their defaults."""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a struct in one version.

    Attributes:
        name: Name of its attribute, in snake_case.
        type: Primitive type or name of the struct; for an array, that of its elements.
        is_array: True if the value is an array.
        is_present: False if the version does not have the field, which then reads as its default.
        is_nullable: True if the value may be null.
        is_flexible: True if lengths are encoded as unsigned varints (KIP-482).
        tag: Number of a tagged field, None for others.
        default: A number, text, tuple or None, or DEFAULT_STRUCT.
        max_value: Largest valid number; None if all numbers of the type are valid.
        struct: Struct of the value or of the array's elements; None for other types.
    """

    name: str
    type: str
    is_array: bool
    is_present: bool
    is_nullable: bool
    is_flexible: bool
    tag: int | None
    default: Any
    max_value: int | None
    struct: Struct | None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A message, or a struct in it, in one version. Fields have Kafka's order; tagged fields follow, sorted by tag."""

    name: str
    version: int
    is_flexible: bool
    fields: tuple[Field, ...]

    @property
    def present(self) -> list[Field]:
        """The fields that the version has."""
        return [field for field in self.fields if field.is_present]


class Attribute(NamedTuple):
    """Python attribute of a field.

    Attributes:
        name: Name of the attribute.
        type: Type of the field, as in Kafka's definitions or one of its conversions (values.py).
        is_nullable: True if the attribute may be None although the version does not allow null, for example because a
            zero UUID is read as None.
    """

    name: str
    type: str
    is_nullable: bool


ToAttribute = Callable[[Definition], Attribute]
"""Function from the definition of a field to its attribute."""


@cache
def definition_locations() -> tuple[DefinitionLocation, ...]:
    """Return the locations of all definitions."""
    pattern = r'^\{"name":"(\w+)",(?:"apiKey":(\d+),)?"type":"([\w-]+)"(?:,"topic":"(\w+)")?.*$'
    return tuple(
        DefinitionLocation(
            file=file,
            name=match[1],
            api_key=int(match[2]) if match[2] else None,
            type=match[3],
            topic=match[4],
            position=match.start(),  # characters are bytes, because the file is ASCII
            size=len(match[0]),
        )
        for file in sorted(_FOLDER.glob("*.jsonl"))
        for match in re.finditer(pattern, file.read_text(encoding="ascii"), re.MULTILINE)
    )


def read_definition(location: DefinitionLocation) -> Definition:
    """Read a definition."""
    with location.file.open("rb") as file:
        file.seek(location.position)
        message: Definition = json.loads(file.read(location.size))
    return message


def versions(message: Definition) -> range:
    """Return the versions of a message."""
    first, _, last = str(message["validVersions"]).partition("-")
    return range(int(first), int(last or first) + 1)


def snake_case(name: str) -> str:
    """Convert a field name: ThrottleTimeMs becomes throttle_time_ms."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def plain_attribute(field: Definition) -> Attribute:
    """Return the attribute of a field with Kafka's own type."""
    return Attribute(snake_case(field["name"]), field["type"], is_nullable=False)


def struct_of(message: Definition, version: int, to_attribute: ToAttribute = plain_attribute) -> Struct:
    """Resolve a message in one version.

    Args:
        message: Definition of the message.
        version: The version, which need not be in `versions`.
        to_attribute: Names and types the attributes.
    """
    common_structs = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", ())}
    is_flexible = _includes(message["flexibleVersions"], version)

    def resolve_struct(name: str, fields: list[Definition]) -> Struct:
        ordered = sorted(fields, key=lambda field: field.get("tag", -1))
        return Struct(name, version, is_flexible, tuple(map(resolve_field, ordered)))

    def resolve_field(field: Definition) -> Field:
        name, type_name, is_always_nullable = to_attribute(field)
        is_array, type_name = type_name.startswith("[]"), type_name.removeprefix("[]")
        struct_fields = field.get("fields") or common_structs.get(type_name)
        tagged_versions = field.get("taggedVersions", "none")
        tag = field["tag"] if _includes(tagged_versions, version) else None
        is_nullable = is_always_nullable or _includes(field.get("nullableVersions", "none"), version)
        # A tagged struct that is absent from a message has default fields, even if it may be null.
        is_null_by_default = is_nullable and not (tag is not None and struct_fields is not None)
        return Field(
            name=name,
            type=type_name,
            is_array=is_array,
            is_present=_includes(field.get("versions", tagged_versions), version),
            is_nullable=is_nullable,
            is_flexible=is_flexible and field.get("flexibleVersions") != "none",
            tag=tag,
            default=_default(field, type_name, is_array=is_array, is_null_by_default=is_null_by_default),
            max_value=field.get("maxValue"),
            struct=None if struct_fields is None else resolve_struct(type_name, struct_fields),
        )

    return resolve_struct(message["name"], message["fields"])


def _default(field: Definition, type_name: str, *, is_array: bool, is_null_by_default: bool) -> Any:
    """Return the default of a field: the declared one, or else null if `is_null_by_default`, or else zero or empty.

    An array without a declared default is empty, even if it may be null.

    Kafka's generated classes default a nullable string to the empty string; here it is null. The JSON value null
    declares null for an array. For a struct, Kafka ignores it, as records that Kafka wrote show
    (ConsumerGroupMemberMetadataValue).
    """
    declared = field.get("default", "")
    if declared == "null" or (declared is None and is_array):
        return None
    if is_array:
        return ()
    if declared in ("", None):
        if is_null_by_default or type_name == "records":
            return None
        is_struct = type_name[0].isupper()
        return DEFAULT_STRUCT if is_struct else _ZEROS.get(type_name, 0)
    if type_name == "string":
        return declared
    if type_name == "bool":
        return str(declared).lower() == "true"
    return int(str(declared), 0)


def _includes(versions: str, version: int) -> bool:
    """Return True if a version is in a range such as `3+`, `0-4`, `1` or `none`."""
    if versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))
