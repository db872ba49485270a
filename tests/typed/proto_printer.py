"""Conversion of a descriptor in base64 to the text that Confluent's registry stores (`ProtobufSchema.toMessage`).

Types are fully qualified, messages come before enums, and a map is a repeated message with option map_entry.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2

_SCALARS = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_LABELS = {1: "optional", 2: "required", 3: "repeated"}


def text_of(schema: str) -> str:
    """The text of a descriptor in base64; another schema as it is."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except ValueError:
        return schema
    lines = [f'syntax = "{file.syntax or "proto2"}";', f"package {file.package};", ""]
    public = set(file.public_dependency)
    lines += [f'import {"public " if i in public else ""}"{name}";' for i, name in enumerate(file.dependency)]
    for message in file.message_type:
        lines += _message(message, file.syntax == "proto3")
    for enum in file.enum_type:
        lines += _enum(enum)
    return "\n".join(lines) + "\n"


def _message(message: Any, proto3: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    for name in message.reserved_name:
        yield f'  reserved "{name}";'
    for of in message.reserved_range:
        yield f"  reserved {of.start} to {of.end - 1};"
    if message.options.map_entry:
        yield "  option map_entry = true;"
    real = [field.HasField("oneof_index") and not field.proto3_optional for field in message.field]
    for field, in_oneof in zip(message.field, real, strict=True):
        if not in_oneof:
            yield f"  {_label(field, proto3)}{_field(field)}"
    for i, oneof in enumerate(message.oneof_decl):
        fields = [one for one, in_oneof in zip(message.field, real, strict=True) if in_oneof and one.oneof_index == i]
        if fields:
            yield f"  oneof {oneof.name} {{"
            yield from (f"    {_field(one)}" for one in fields)
            yield "  }"
    for nested in message.nested_type:
        yield from (f"  {line}" for line in _message(nested, proto3))
    for enum in message.enum_type:
        yield from (f"  {line}" for line in _enum(enum))
    yield "}"


def _label(field: Any, proto3: bool) -> str:
    return "" if proto3 and field.label == 1 and not field.proto3_optional else f"{_LABELS[field.label]} "


def _field(field: Any) -> str:
    packed = f" [packed = {str(field.options.packed).lower()}]" if field.options.HasField("packed") else ""
    return f"{field.type_name or _SCALARS[field.type]} {field.name} = {field.number}{packed};"


def _enum(enum: Any) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    if enum.options.allow_alias:
        yield "  option allow_alias = true;"
    yield from (f"  {value.name} = {value.number};" for value in enum.value)
    yield "}"
