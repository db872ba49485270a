"""Defaults of Avro fields: which JSON values are valid, and how they are encoded."""

from __future__ import annotations

import math
import struct
from ctypes import c_float
from typing import Any

from kafkalog_spark.format.varints import write_varint
from kafkalog_spark.typed.avro.schema import NO_DEFAULT, AvroType

_INT32, _INT64 = 2**31, 2**63
END_OF_BLOCKS = b"\0"  # block count 0, which ends an array or map


def zigzag(number: int) -> bytes:
    """Return the Avro encoding of an int or long."""
    varint = bytearray()
    write_varint(varint, number)
    return bytes(varint)


def encode_default(type_: AvroType, value: Any) -> bytes:
    """Return the binary encoding of a default, like Java's `ResolvingGrammarGenerator.encode`.

    An integer that is too large keeps its low bits; any other number is rounded to the nearest one of the type. The
    bytes of a fixed are truncated or padded with zeros.

    Args:
        type_: Type of the field.
        value: JSON value for which `is_valid_default` is true.
    """
    match type_.kind:
        case "union":
            branch = default_branch(type_, value)
            return zigzag(type_.branches.index(branch)) + encode_default(branch, value)
        case "record":
            members = _members(value)
            return b"".join(
                encode_default(field.type, members.get(field.name, field.default)) for field in type_.fields
            )
        case "array" | "map":
            if type_.kind == "array":
                parts = [encode_default(type_.element, element) for element in value]
            else:
                parts = [
                    _length_prefixed(key.encode("utf-8", "replace")) + encode_default(type_.element, item)
                    for key, item in _members(value).items()
                ]
            return (zigzag(len(parts)) + b"".join(parts) if parts else b"") + END_OF_BLOCKS
        case "null":
            return b""
        case "boolean":
            return b"\1" if value else b"\0"
        case "int" | "long":
            limit = _INT32 if type_.kind == "int" else _INT64
            if isinstance(value, int):
                return zigzag((value + limit) % (2 * limit) - limit)
            return zigzag(int(min(max(value, -limit), limit - 1)))
        case "float" | "double":
            try:
                number = float(value)
            except OverflowError:  # an integer out of the range of double becomes infinite
                number = math.inf if value > 0 else -math.inf
            return struct.pack("<d", number) if type_.kind == "double" else bytes(c_float(number))
        case "bytes":
            return _length_prefixed(value.encode("latin-1", "replace"))
        case "fixed":
            return bytes(value.encode("latin-1", "replace")[: type_.size].ljust(type_.size, b"\0"))
        case "enum":
            return zigzag(type_.symbols.index(value))
    return _length_prefixed(value.encode("utf-8", "replace"))


def default_branch(type_: AvroType, value: Any) -> AvroType:
    """Return the branch of a union that a default is encoded as: like in Avro 1.12, the first one that may match.

    Every JSON value may match an enum, record, array or map. So null is not a default of a union in which the branch
    null comes after such a branch.
    """
    for branch in type_.branches:
        if branch.kind in ("record", "enum", "array", "map"):
            return branch
        if _is_valid_leaf(branch, value):
            return branch
    return type_.branches[0]


def is_valid_default(type_: AvroType, value: Any) -> bool:
    """Return whether a JSON value is a valid default of a type (Java's `Schema.isValidDefault`)."""
    if value is NO_DEFAULT:
        return False
    if type_.kind == "union":
        return is_valid_default(default_branch(type_, value), value)
    if type_.kind == "record":
        return all(
            is_valid_default(field.type, _members(value).get(field.name, field.default)) for field in type_.fields
        )
    if type_.kind == "array":
        return isinstance(value, list) and all(is_valid_default(type_.element, element) for element in value)
    if type_.kind == "map":
        return all(is_valid_default(type_.element, element) for element in _members(value).values())
    return _is_valid_leaf(type_, value)


def _is_valid_leaf(type_: AvroType, value: Any) -> bool:
    if type_.kind == "null":
        return value is None
    if type_.kind == "boolean":
        return isinstance(value, bool)
    if type_.kind in ("int", "long", "float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (type_.kind != "enum" or value in type_.symbols)


def _members(value: Any) -> dict[str, Any]:
    """Return the members of a JSON object. Any other JSON value has no members, as in Java."""
    return value if isinstance(value, dict) else {}


def _length_prefixed(data: bytes) -> bytes:
    return zigzag(len(data)) + data
